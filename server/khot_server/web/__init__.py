"""The HTTP side of the API process: `/metrics` for Prometheus, a status page for people.

    server.py      connections: bounded in number, size and time, on a thread of their own
    messages.py    a request and its reply, as data
    site.py        which path is answered with what, and with which headers
    access.py      who asks, and may see what
    page.py        the pages, of `templates/`
    board.py       what the page shows: figures of the registry, jobs of the store
    sparkline.py   a loss as a line of SVG
    words.py       numbers, times and what users wrote, as text

Nothing here runs on the event loop that serves gRPC, and nothing here writes.
"""
