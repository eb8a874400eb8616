"""What everything else stands on: errors, element types, sizes, shapes, limits and constants. No torch."""
