"""Published protocols of faces and landmarks; `limpet.evaluation.protocols.PROTOCOLS` finds them by name."""
