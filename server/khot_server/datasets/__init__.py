"""Tables to train on: built-in ones and uploads, their summaries, and how a job takes them.

The API process reads summaries alone (`records`, `fit`, `store`); tables are read by a child
process when they are uploaded (`parse`), and by the attempts (`table`, `examples`). Nothing
here imports torch or grpc, and pooch and pyarrow only when they are needed.
"""
