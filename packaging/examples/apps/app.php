<?php
// What came in, and how long the body was. /missing is a 404.
$path = $_SERVER['REQUEST_URI'] ?? '';
if (str_contains($path, 'missing')) http_response_code(404);
header('Content-Type: text/plain');
$length = strlen(file_get_contents('php://input'));
echo "hello from php: {$_SERVER['REQUEST_METHOD']} query=", $_SERVER['QUERY_STRING'] ?? '', " body=$length\n";
