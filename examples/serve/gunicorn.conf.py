"""Settings of gunicorn for app.py: `gunicorn -c gunicorn.conf.py app:app`."""

from __future__ import annotations

import os
from typing import Any

worker_class = "uvicorn_worker.UvicornWorker"
workers = 2
# Imported once and forked: workers share what was imported.  The model is loaded by the lifespan of
# each worker, after the fork; what a fork inherits is refused (AOTC-R026).
preload_app = True
# Seconds that a worker may take to answer what it took, once it was told to end.
graceful_timeout = 30
# No socket for gunicornc in a home folder, which a service does not have.
control_socket_disable = True


def child_exit(server: Any, worker: Any) -> None:
    """What a worker was does not count once it has ended, however it did."""
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        from prometheus_client import multiprocess

        multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
