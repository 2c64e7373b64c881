#!/usr/bin/perl
# A FastCGI app with FCGI.pm: what came in, and how long the body was. /missing is a 404.
use strict;
use warnings;
use FCGI;

my $request = FCGI::Request();
while ($request->Accept() >= 0) {
  my ($length, $piece) = (0, '');
  my $left = $ENV{CONTENT_LENGTH} || 0;
  while ($left > 0 && (my $n = read STDIN, $piece, 65536)) { $length += $n; $left -= $n }
  my $path = ($ENV{SCRIPT_NAME} // '') . ($ENV{PATH_INFO} // '');
  print "Status: 404 Not Found\r\n" if $path =~ /missing/;
  print "Content-Type: text/plain\r\n\r\n";
  print "hello from perl: $ENV{REQUEST_METHOD} query=", $ENV{QUERY_STRING} // '', " body=$length\n";
}
