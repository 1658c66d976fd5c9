from . import (
    baselines as baselines,
)
from . import (
    cli as cli,
)
from . import (
    common as common,
)
from . import (
    datasets as datasets,
)
from . import (
    evaluation as evaluation,
)
from . import (
    heads as heads,
)
from . import (
    icnn as icnn,
)
from . import (
    integrations as integrations,
)
from . import (
    interpretability as interpretability,
)
from . import (
    retrieval as retrieval,
)
from . import (
    study as study,
)
from . import (
    theory as theory,
)
from . import (
    training as training,
)
from .baselines import make_head as make_head
from .datasets import from_pairs as from_pairs
from .datasets import load_dataset as load_dataset
from .evaluation import compare as compare
from .evaluation import evaluate as evaluate
from .heads import BregmanHead as BregmanHead
from .heads import DistanceHead as DistanceHead
from .heads import load_head as load_head
from .retrieval import TargetIndex as TargetIndex
from .training import TrainConfig as TrainConfig
from .training import fit as fit

__version__: str
