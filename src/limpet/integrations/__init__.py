"""limpet inside the frameworks that an application uses already, one module for each; see `LinkedModel`."""
