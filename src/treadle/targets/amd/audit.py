def audit(emitted, assembly, metadata):
    return {}
