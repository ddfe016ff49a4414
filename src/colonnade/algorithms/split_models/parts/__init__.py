"""What the algorithms of split models share: everything that is not an equation of one of them."""
