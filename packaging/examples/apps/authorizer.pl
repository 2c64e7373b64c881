#!/usr/bin/perl
# A FastCGI Authorizer with FCGI.pm: alice with the password "secret" may see the site. For Apache's mod_authnz_fcgi,
# which passes what was typed as REMOTE_USER and REMOTE_PASSWD, and for lighttpd, which passes the field.
use strict;
use warnings;
use FCGI;
use MIME::Base64;

my $request = FCGI::Request();
while ($request->Accept() >= 0) {
  my ($user, $password) = ($ENV{REMOTE_USER} // '', $ENV{REMOTE_PASSWD} // '');
  if (($ENV{HTTP_AUTHORIZATION} // '') =~ /^Basic (.+)/i) {
    ($user, $password) = split /:/, decode_base64($1), 2;
  }
  if ($user eq 'alice' && $password eq 'secret') {
    print "Status: 200 OK\r\nVariable-AUTHENTICATED_BY: hostler\r\nContent-Type: text/plain\r\n\r\n";
  } else {
    print "Status: 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"site\"\r\nContent-Type: text/plain\r\n\r\nno\n";
  }
}
