"""`khot reproduce`: the experiments of the papers, as jobs of a server, and what came of them.

    experiments -> Run, Run, ... -> drive -> server
                                      |
                                      v
                                   ledger (CSV) -> table (Markdown), picture (PNG)

`experiments` has a row for each experiment, `settings.toml` what each method is run with, and
`published` what the papers report. What was found is in the CSV alone: table and picture are
made of it, and a run with a row there is not run again.
"""
