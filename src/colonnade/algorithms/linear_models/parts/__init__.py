"""What the algorithms of linear models share: everything that is not an equation of one of them."""
