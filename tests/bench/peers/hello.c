/* The smallest libfcgi program: cc -O2 -o hello hello.c -lfcgi */
#include <fcgi_stdio.h>

int main(void) {
    while (FCGI_Accept() >= 0) printf("Content-Type: text/plain\r\n\r\nhello\n");
    return 0;
}
