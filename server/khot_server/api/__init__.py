"""The API process: gRPC servicers and their lifecycle. Imports neither torch nor khot."""
