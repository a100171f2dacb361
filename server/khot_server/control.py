"""What the supervisor and its processes agree on beside their sockets."""

# That it could start: said once by the API process over its control socket, and by an
# engine over its lifeline, on which it was told its device.
READY = b"+"
# The API process gets one byte with one descriptor over its control socket for each
ENGINE = b"E"  # the link to a new engine
RUNNER = b"R"  # the bell of the runner

# Over its lifeline an engine says every PULSE_S, from its first moment on, that it is alive.
PULSE_S = 0.25
PULSE = b"."

# The exit status of a process that would fail again if it were started again.
CANNOT_START = 78
