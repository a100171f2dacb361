"""Everything a first training would load, loaded before there is one."""

import torch


def up() -> None:
    """Import what is otherwise imported late; compute nothing, for `jobs.nursery` will fork."""
    import khot_server.jobs.artifacts.pictures
    import khot_server.jobs.tasks.carry_out  # noqa: F401

    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])  # loads torch's compiler, in a second
