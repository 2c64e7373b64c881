/* The smallest CGI program: cc -O2 -o hello.cgi cgi.c */
#include <stdio.h>

int main(void) {
    fputs("Content-Type: text/plain\r\n\r\nhello\n", stdout);
    return 0;
}
