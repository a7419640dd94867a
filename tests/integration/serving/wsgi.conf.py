"""Settings of gunicorn for wsgi_app.py."""

import os

workers = 2
worker_class = "gthread"
threads = 2
control_socket_disable = True
preload_app = os.environ.get("PRELOAD") == "yes"


def post_fork(server, worker):
    """Load in each worker, not before."""
    import wsgi_app

    if os.environ.get("LOAD") == "in post_fork":
        wsgi_app.load()
