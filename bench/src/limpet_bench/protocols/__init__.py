"""Published protocols for faces and landmarks, registered in `limpet.evaluation.protocols.PROTOCOLS`."""
