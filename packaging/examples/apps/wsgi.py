# A WSGI app: what came in, and how long the body was. /missing is a 404.


def application(env, start):
    left, length = int(env.get("CONTENT_LENGTH") or 0), 0
    while left > 0:
        piece = env["wsgi.input"].read(min(left, 65536))
        if not piece:
            break
        length, left = length + len(piece), left - len(piece)
    path = env.get("SCRIPT_NAME", "") + env.get("PATH_INFO", "")
    start("404 Not Found" if "missing" in path else "200 OK", [("Content-Type", "text/plain")])
    return [f"hello from python: {env['REQUEST_METHOD']} query={env.get('QUERY_STRING', '')} body={length}\n".encode()]
