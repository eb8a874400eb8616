"""The documented functions under their documented names, a file for each op family.

Each makes one or a few HLO instructions out of XlaOps. Given torch tensors instead, it runs at once.
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
