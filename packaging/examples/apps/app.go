// A FastCGI app with Go's net/http/fcgi: what came in, and how long the body was. /missing is a 404.
// go build -o app-go app.go
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/fcgi"
	"strings"
)

func main() {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		length, _ := io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/plain")
		if strings.Contains(r.URL.Path, "missing") {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprintf(w, "hello from go: %s query=%s body=%d\n", r.Method, r.URL.RawQuery, length)
	})
	// Without a listener of its own it takes the one that is descriptor 0.
	log.Fatal(fcgi.Serve(nil, handler))
}
