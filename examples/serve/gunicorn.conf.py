"""Settings of gunicorn for app.py: `gunicorn -c gunicorn.conf.py app:app`."""

worker_class = "uvicorn_worker.UvicornWorker"
workers = 2
# Imported once and forked: workers share what was imported.  The model is loaded by the lifespan of
# each worker, after the fork; what a fork inherits is refused (AOTC-R026).
preload_app = True
# Seconds that a worker may take to answer what it took, once it was told to end.
graceful_timeout = 30
# No socket for gunicornc in a home folder, which a service does not have.
control_socket_disable = True
