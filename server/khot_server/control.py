"""What the supervisor and its processes agree on beside their sockets."""

# Over the control socket the API process says once that it could start,
READY = b"+"
# and gets one byte with one descriptor for each
ENGINE = b"E"  # the link to a new engine
RUNNER = b"R"  # the bell of the runner

# The exit status of a process that would fail again if it were started again.
CANNOT_START = 78
