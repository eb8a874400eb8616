"""Element types and buffers in torch: the boundary's dtypes, the storage dtypes inside, layouts; torch's private parts."""

from . import vector_math as vector_math
