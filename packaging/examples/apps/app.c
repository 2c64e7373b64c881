/* A FastCGI app with libfcgi: what came in, and how long the body was. /missing is a 404.
   cc -O2 -o app app.c -lfcgi */
#include <fcgi_stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value ? value : "";
}

int main(void) {
  static char piece[65536];
  while (FCGI_Accept() >= 0) {
    char path[1024];
    long left = atol(variable("CONTENT_LENGTH")), length = 0;
    while (left > 0) {
      size_t n = fread(piece, 1, left < (long)sizeof piece ? (size_t)left : sizeof piece, stdin);
      if (n == 0) break;
      length += (long)n;
      left -= (long)n;
    }
    snprintf(path, sizeof path, "%s%s", variable("SCRIPT_NAME"), variable("PATH_INFO"));
    if (strstr(path, "missing")) printf("Status: 404 Not Found\r\n");
    printf("Content-Type: text/plain\r\n\r\n");
    printf("hello from c: %s query=%s body=%ld\n", variable("REQUEST_METHOD"), variable("QUERY_STRING"), length);
  }
  return 0;
}
