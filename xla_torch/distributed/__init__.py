"""Participants of a program: replicas and partitions, their groups, and the queues that link a program with its host.

Gradients have one convention, whoever asks for them (`grad`, `value_and_grad`, `vjp`, ``.backward()``) and wherever the
participants run: **every participant has a loss of its own, and gets the gradient of the sum of all participants' losses with
respect to its own arguments.** A value that is the same everywhere counts once for every participant that has it. So

- a loss that P participants have in common is divided by P (or its cotangent is 1/P);
- the gradient of an argument that P participants have in common is the sum of what they get.

Two participants with a weight ``w = 3`` each, and ``x`` of 1 and 2:

===============================  ==============  ============================  ===========================================
loss of each                     losses          gradients by the own ``w``    dL/dw of the one weight, L being the loss
===============================  ==============  ============================  ===========================================
``w * x``                        3 and 6         1 and 2                       1 + 2 = 3, of L = 3 + 6
``all_reduce(w * x)``            9 and 9         2 and 4: that of 18           (2 + 4) / 2 = 3, of L = 9
``all_reduce(w * x) / 2``        4.5 and 4.5     1 and 2                       1 + 2 = 3, of L = 9
``all_reduce(w) / 2 * x``        3 and 6         1.5 and 1.5: summed, halved   1.5 + 1.5 = 3, of L = 3 + 6
===============================  ==============  ============================  ===========================================

`jax.grad` within `jax.pmap`, or within `jax.shard_map` with ``check_vma=False``, has the same convention. With
``check_vma=True`` JAX knows what is the same everywhere: there a common loss counts once (the second row gives 1 and 2), and
the gradient of a common argument comes summed. A program lowered from JAX contains the gradients that JAX has made, and runs
as it is.
"""

from typing import TYPE_CHECKING

from ..core.lazy_imports import lazy

if TYPE_CHECKING:
    from . import feeds
    from .processes import Processes, of_process_group, run_on_processes, standing
    from .threads import run_replicas

__all__ = ["Processes", "feeds", "of_process_group", "run_on_processes", "run_replicas", "standing"]

# Programs of one participant use a part of this package, and some builds of torch lack torch.distributed.
__getattr__ = lazy(__name__, {"feeds": "", "processes": "Processes of_process_group run_on_processes standing",
                              "threads": "run_replicas"})
