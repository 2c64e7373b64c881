# A FastCGI app with the gem fcgi: what came in, and how long the body was. /missing is a 404.
require "fcgi"

FCGI.each do |request|
  env = request.env
  path = "#{env['SCRIPT_NAME']}#{env['PATH_INFO']}"
  length = (request.in.read || "").bytesize
  out = request.out
  out.print "Status: 404 Not Found\r\n" if path.include?("missing")
  out.print "Content-Type: text/plain\r\n\r\n"
  out.print "hello from ruby: #{env['REQUEST_METHOD']} query=#{env['QUERY_STRING']} body=#{length}\n"
  request.finish
end
