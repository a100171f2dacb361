from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Objective(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OBJECTIVE_UNSPECIFIED: _ClassVar[Objective]
    OBJECTIVE_CLASSIFICATION: _ClassVar[Objective]
    OBJECTIVE_REGRESSION: _ClassVar[Objective]
    OBJECTIVE_RECONSTRUCTION: _ClassVar[Objective]

class MissingValues(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MISSING_VALUES_UNSPECIFIED: _ClassVar[MissingValues]
    MISSING_VALUES_REFUSE: _ClassVar[MissingValues]
    MISSING_VALUES_IMPUTE: _ClassVar[MissingValues]

class Noise(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NOISE_UNSPECIFIED: _ClassVar[Noise]
    NOISE_SUM_OF_GAMMA: _ClassVar[Noise]
    NOISE_GUMBEL: _ClassVar[Noise]

class Prior(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIOR_UNSPECIFIED: _ClassVar[Prior]
    PRIOR_SOFTMAX: _ClassVar[Prior]
    PRIOR_EXACT: _ClassVar[Prior]
    PRIOR_SOFTMAX_MEAN: _ClassVar[Prior]
OBJECTIVE_UNSPECIFIED: Objective
OBJECTIVE_CLASSIFICATION: Objective
OBJECTIVE_REGRESSION: Objective
OBJECTIVE_RECONSTRUCTION: Objective
MISSING_VALUES_UNSPECIFIED: MissingValues
MISSING_VALUES_REFUSE: MissingValues
MISSING_VALUES_IMPUTE: MissingValues
NOISE_UNSPECIFIED: Noise
NOISE_SUM_OF_GAMMA: Noise
NOISE_GUMBEL: Noise
PRIOR_UNSPECIFIED: Prior
PRIOR_SOFTMAX: Prior
PRIOR_EXACT: Prior
PRIOR_SOFTMAX_MEAN: Prior

class JobSpec(_message.Message):
    __slots__ = ("feature_selection", "vae", "sparse_regression")
    FEATURE_SELECTION_FIELD_NUMBER: _ClassVar[int]
    VAE_FIELD_NUMBER: _ClassVar[int]
    SPARSE_REGRESSION_FIELD_NUMBER: _ClassVar[int]
    feature_selection: FeatureSelection
    vae: Vae
    sparse_regression: SparseRegression
    def __init__(self, feature_selection: _Optional[_Union[FeatureSelection, _Mapping]] = ..., vae: _Optional[_Union[Vae, _Mapping]] = ..., sparse_regression: _Optional[_Union[SparseRegression, _Mapping]] = ...) -> None: ...

class FeatureSelection(_message.Message):
    __slots__ = ("dataset", "k", "epochs", "seed", "penalty", "estimator", "target", "objective", "ignore", "missing", "standardize", "hidden", "batch_size", "learning_rate", "mask_learning_rate", "tau", "last_tau", "patience", "split_seed", "validation_share", "test_share", "references", "initial_k", "tuning", "weight_decay", "hard")
    DATASET_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PENALTY_FIELD_NUMBER: _ClassVar[int]
    ESTIMATOR_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    IGNORE_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    STANDARDIZE_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    MASK_LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    TAU_FIELD_NUMBER: _ClassVar[int]
    LAST_TAU_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_FIELD_NUMBER: _ClassVar[int]
    SPLIT_SEED_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_SHARE_FIELD_NUMBER: _ClassVar[int]
    TEST_SHARE_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    INITIAL_K_FIELD_NUMBER: _ClassVar[int]
    TUNING_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    HARD_FIELD_NUMBER: _ClassVar[int]
    dataset: str
    k: int
    epochs: int
    seed: int
    penalty: float
    estimator: str
    target: str
    objective: Objective
    ignore: _containers.RepeatedScalarFieldContainer[str]
    missing: MissingValues
    standardize: bool
    hidden: Layers
    batch_size: int
    learning_rate: float
    mask_learning_rate: float
    tau: float
    last_tau: float
    patience: int
    split_seed: int
    validation_share: float
    test_share: float
    references: bool
    initial_k: float
    tuning: float
    weight_decay: float
    hard: bool
    def __init__(self, dataset: _Optional[str] = ..., k: _Optional[int] = ..., epochs: _Optional[int] = ..., seed: _Optional[int] = ..., penalty: _Optional[float] = ..., estimator: _Optional[str] = ..., target: _Optional[str] = ..., objective: _Optional[_Union[Objective, str]] = ..., ignore: _Optional[_Iterable[str]] = ..., missing: _Optional[_Union[MissingValues, str]] = ..., standardize: bool = ..., hidden: _Optional[_Union[Layers, _Mapping]] = ..., batch_size: _Optional[int] = ..., learning_rate: _Optional[float] = ..., mask_learning_rate: _Optional[float] = ..., tau: _Optional[float] = ..., last_tau: _Optional[float] = ..., patience: _Optional[int] = ..., split_seed: _Optional[int] = ..., validation_share: _Optional[float] = ..., test_share: _Optional[float] = ..., references: bool = ..., initial_k: _Optional[float] = ..., tuning: _Optional[float] = ..., weight_decay: _Optional[float] = ..., hard: bool = ...) -> None: ...

class Layers(_message.Message):
    __slots__ = ("widths",)
    WIDTHS_FIELD_NUMBER: _ClassVar[int]
    widths: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, widths: _Optional[_Iterable[int]] = ...) -> None: ...

class Vae(_message.Message):
    __slots__ = ("dataset", "latents", "n", "k", "epochs", "seed", "estimator", "prior", "encoder", "decoder", "batch_size", "learning_rate", "tau", "last_tau", "patience", "split_seed", "validation_share", "test_share", "hard", "strength", "noise", "bound")
    DATASET_FIELD_NUMBER: _ClassVar[int]
    LATENTS_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    ESTIMATOR_FIELD_NUMBER: _ClassVar[int]
    PRIOR_FIELD_NUMBER: _ClassVar[int]
    ENCODER_FIELD_NUMBER: _ClassVar[int]
    DECODER_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    TAU_FIELD_NUMBER: _ClassVar[int]
    LAST_TAU_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_FIELD_NUMBER: _ClassVar[int]
    SPLIT_SEED_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_SHARE_FIELD_NUMBER: _ClassVar[int]
    TEST_SHARE_FIELD_NUMBER: _ClassVar[int]
    HARD_FIELD_NUMBER: _ClassVar[int]
    STRENGTH_FIELD_NUMBER: _ClassVar[int]
    NOISE_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    dataset: str
    latents: int
    n: int
    k: int
    epochs: int
    seed: int
    estimator: str
    prior: Prior
    encoder: Layers
    decoder: Layers
    batch_size: int
    learning_rate: float
    tau: float
    last_tau: float
    patience: int
    split_seed: int
    validation_share: float
    test_share: float
    hard: bool
    strength: float
    noise: Noise
    bound: bool
    def __init__(self, dataset: _Optional[str] = ..., latents: _Optional[int] = ..., n: _Optional[int] = ..., k: _Optional[int] = ..., epochs: _Optional[int] = ..., seed: _Optional[int] = ..., estimator: _Optional[str] = ..., prior: _Optional[_Union[Prior, str]] = ..., encoder: _Optional[_Union[Layers, _Mapping]] = ..., decoder: _Optional[_Union[Layers, _Mapping]] = ..., batch_size: _Optional[int] = ..., learning_rate: _Optional[float] = ..., tau: _Optional[float] = ..., last_tau: _Optional[float] = ..., patience: _Optional[int] = ..., split_seed: _Optional[int] = ..., validation_share: _Optional[float] = ..., test_share: _Optional[float] = ..., hard: bool = ..., strength: _Optional[float] = ..., noise: _Optional[_Union[Noise, str]] = ..., bound: bool = ...) -> None: ...

class SparseRegression(_message.Message):
    __slots__ = ("dataset", "k", "seed", "estimator", "target", "ignore", "missing", "intercept", "steps", "num_samples", "learning_rate", "tau", "last_tau", "ridge", "split_seed", "validation_share", "test_share", "references")
    DATASET_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    ESTIMATOR_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    IGNORE_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    INTERCEPT_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    TAU_FIELD_NUMBER: _ClassVar[int]
    LAST_TAU_FIELD_NUMBER: _ClassVar[int]
    RIDGE_FIELD_NUMBER: _ClassVar[int]
    SPLIT_SEED_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_SHARE_FIELD_NUMBER: _ClassVar[int]
    TEST_SHARE_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    dataset: str
    k: int
    seed: int
    estimator: str
    target: str
    ignore: _containers.RepeatedScalarFieldContainer[str]
    missing: MissingValues
    intercept: bool
    steps: int
    num_samples: int
    learning_rate: float
    tau: float
    last_tau: float
    ridge: float
    split_seed: int
    validation_share: float
    test_share: float
    references: bool
    def __init__(self, dataset: _Optional[str] = ..., k: _Optional[int] = ..., seed: _Optional[int] = ..., estimator: _Optional[str] = ..., target: _Optional[str] = ..., ignore: _Optional[_Iterable[str]] = ..., missing: _Optional[_Union[MissingValues, str]] = ..., intercept: bool = ..., steps: _Optional[int] = ..., num_samples: _Optional[int] = ..., learning_rate: _Optional[float] = ..., tau: _Optional[float] = ..., last_tau: _Optional[float] = ..., ridge: _Optional[float] = ..., split_seed: _Optional[int] = ..., validation_share: _Optional[float] = ..., test_share: _Optional[float] = ..., references: bool = ...) -> None: ...

class JobResult(_message.Message):
    __slots__ = ("feature_selection", "vae", "sparse_regression", "warnings")
    FEATURE_SELECTION_FIELD_NUMBER: _ClassVar[int]
    VAE_FIELD_NUMBER: _ClassVar[int]
    SPARSE_REGRESSION_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    feature_selection: FeatureSelectionResult
    vae: VaeResult
    sparse_regression: SparseRegressionResult
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, feature_selection: _Optional[_Union[FeatureSelectionResult, _Mapping]] = ..., vae: _Optional[_Union[VaeResult, _Mapping]] = ..., sparse_regression: _Optional[_Union[SparseRegressionResult, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class FeatureSelectionResult(_message.Message):
    __slots__ = ("features", "scores", "feature_shape", "names", "inclusion_probabilities", "test", "validation", "references", "stability", "epochs_run", "classes")
    class TestEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class ValidationEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class ReferencesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Metrics
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Metrics, _Mapping]] = ...) -> None: ...
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    FEATURE_SHAPE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    INCLUSION_PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    STABILITY_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_RUN_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    features: _containers.RepeatedScalarFieldContainer[int]
    scores: _containers.RepeatedScalarFieldContainer[float]
    feature_shape: _containers.RepeatedScalarFieldContainer[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    inclusion_probabilities: _containers.RepeatedScalarFieldContainer[float]
    test: _containers.ScalarMap[str, float]
    validation: _containers.ScalarMap[str, float]
    references: _containers.MessageMap[str, Metrics]
    stability: float
    epochs_run: int
    classes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, features: _Optional[_Iterable[int]] = ..., scores: _Optional[_Iterable[float]] = ..., feature_shape: _Optional[_Iterable[int]] = ..., names: _Optional[_Iterable[str]] = ..., inclusion_probabilities: _Optional[_Iterable[float]] = ..., test: _Optional[_Mapping[str, float]] = ..., validation: _Optional[_Mapping[str, float]] = ..., references: _Optional[_Mapping[str, Metrics]] = ..., stability: _Optional[float] = ..., epochs_run: _Optional[int] = ..., classes: _Optional[_Iterable[str]] = ...) -> None: ...

class Metrics(_message.Message):
    __slots__ = ("values",)
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.ScalarMap[str, float]
    def __init__(self, values: _Optional[_Mapping[str, float]] = ...) -> None: ...

class VaeResult(_message.Message):
    __slots__ = ("test", "validation", "usage", "usage_shape", "epochs_run")
    class TestEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class ValidationEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    TEST_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    USAGE_SHAPE_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_RUN_FIELD_NUMBER: _ClassVar[int]
    test: _containers.ScalarMap[str, float]
    validation: _containers.ScalarMap[str, float]
    usage: _containers.RepeatedScalarFieldContainer[float]
    usage_shape: _containers.RepeatedScalarFieldContainer[int]
    epochs_run: int
    def __init__(self, test: _Optional[_Mapping[str, float]] = ..., validation: _Optional[_Mapping[str, float]] = ..., usage: _Optional[_Iterable[float]] = ..., usage_shape: _Optional[_Iterable[int]] = ..., epochs_run: _Optional[int] = ...) -> None: ...

class SparseRegressionResult(_message.Message):
    __slots__ = ("features", "names", "coefficients", "intercept", "target", "scores", "inclusion_probabilities", "test", "validation", "references", "stability", "epochs_run")
    class TestEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class ValidationEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class ReferencesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Metrics
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Metrics, _Mapping]] = ...) -> None: ...
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    COEFFICIENTS_FIELD_NUMBER: _ClassVar[int]
    INTERCEPT_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    INCLUSION_PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    STABILITY_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_RUN_FIELD_NUMBER: _ClassVar[int]
    features: _containers.RepeatedScalarFieldContainer[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    coefficients: _containers.RepeatedScalarFieldContainer[float]
    intercept: float
    target: str
    scores: _containers.RepeatedScalarFieldContainer[float]
    inclusion_probabilities: _containers.RepeatedScalarFieldContainer[float]
    test: _containers.ScalarMap[str, float]
    validation: _containers.ScalarMap[str, float]
    references: _containers.MessageMap[str, Metrics]
    stability: float
    epochs_run: int
    def __init__(self, features: _Optional[_Iterable[int]] = ..., names: _Optional[_Iterable[str]] = ..., coefficients: _Optional[_Iterable[float]] = ..., intercept: _Optional[float] = ..., target: _Optional[str] = ..., scores: _Optional[_Iterable[float]] = ..., inclusion_probabilities: _Optional[_Iterable[float]] = ..., test: _Optional[_Mapping[str, float]] = ..., validation: _Optional[_Mapping[str, float]] = ..., references: _Optional[_Mapping[str, Metrics]] = ..., stability: _Optional[float] = ..., epochs_run: _Optional[int] = ...) -> None: ...
