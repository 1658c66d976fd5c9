"""What a head is, our head with its role maps, and ranking by any head."""
import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
