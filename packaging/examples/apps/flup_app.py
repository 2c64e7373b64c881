# The app of wsgi.py behind flup, on the listener that is descriptor 0.
from flup.server.fcgi import WSGIServer
from wsgi import application

WSGIServer(application, multithreaded=False, multiprocess=False).run()
