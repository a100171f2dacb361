"""Generated from the `.proto` files beside it by `make proto`; wire package khot.v1."""
