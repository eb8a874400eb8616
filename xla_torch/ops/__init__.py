"""The documented functions under their documented names, a file for each op family.

Each makes one or a few HLO instructions out of XlaOps, and raises InvalidArgument at once for what XLA's shape inference
refuses. Given torch tensors instead, it runs at once. A function follows the section of its own name in the operation semantics
documents; parameters have the newest document's names, and take older ones too. A builder need not be given: it is that of the
operands, and a function without operands runs at once where there is none.
"""

from .collective import *
from .comparison import *
from .contraction import *
from .control import *
from .convert import *
from .decompositions import *
from .dynamic import *
from .elementwise import *
from .incomplete import *
from .indexing import *
from .internal import *
from .linalg import *
from .movement import *
from .random import *
from .reduction import *
from .sorting import *
from .special import *
from .token import *
from .window import *
