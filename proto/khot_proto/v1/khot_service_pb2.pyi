from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from khot_proto.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OperatorKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATOR_KIND_UNSPECIFIED: _ClassVar[OperatorKind]
    OPERATOR_KIND_RELAXATION: _ClassVar[OperatorKind]
    OPERATOR_KIND_DESIGN: _ClassVar[OperatorKind]
OPERATOR_KIND_UNSPECIFIED: OperatorKind
OPERATOR_KIND_RELAXATION: OperatorKind
OPERATOR_KIND_DESIGN: OperatorKind

class RelaxRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[RelaxItem]
    def __init__(self, items: _Optional[_Iterable[_Union[RelaxItem, _Mapping]]] = ...) -> None: ...

class RelaxItem(_message.Message):
    __slots__ = ("operator", "scores", "k", "tau")
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    TAU_FIELD_NUMBER: _ClassVar[int]
    operator: str
    scores: _tensor_pb2.Tensor
    k: _containers.RepeatedScalarFieldContainer[float]
    tau: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, operator: _Optional[str] = ..., scores: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., k: _Optional[_Iterable[float]] = ..., tau: _Optional[_Iterable[float]] = ...) -> None: ...

class RelaxResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[RelaxResult]
    def __init__(self, results: _Optional[_Iterable[_Union[RelaxResult, _Mapping]]] = ...) -> None: ...

class RelaxResult(_message.Message):
    __slots__ = ("status", "soft", "timing")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SOFT_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    status: ItemStatus
    soft: _tensor_pb2.Tensor
    timing: Timing
    def __init__(self, status: _Optional[_Union[ItemStatus, _Mapping]] = ..., soft: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ...) -> None: ...

class SampleRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[SampleItem]
    def __init__(self, items: _Optional[_Iterable[_Union[SampleItem, _Mapping]]] = ...) -> None: ...

class SampleItem(_message.Message):
    __slots__ = ("operator", "scores", "k", "tau", "seed")
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    TAU_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    operator: str
    scores: _tensor_pb2.Tensor
    k: _containers.RepeatedScalarFieldContainer[float]
    tau: _containers.RepeatedScalarFieldContainer[float]
    seed: int
    def __init__(self, operator: _Optional[str] = ..., scores: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., k: _Optional[_Iterable[float]] = ..., tau: _Optional[_Iterable[float]] = ..., seed: _Optional[int] = ...) -> None: ...

class SampleResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SampleResult]
    def __init__(self, results: _Optional[_Iterable[_Union[SampleResult, _Mapping]]] = ...) -> None: ...

class SampleResult(_message.Message):
    __slots__ = ("status", "mask", "seed", "timing")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    status: ItemStatus
    mask: Mask
    seed: int
    timing: Timing
    def __init__(self, status: _Optional[_Union[ItemStatus, _Mapping]] = ..., mask: _Optional[_Union[Mask, _Mapping]] = ..., seed: _Optional[int] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ...) -> None: ...

class Mask(_message.Message):
    __slots__ = ("shape", "bits")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    bits: bytes
    def __init__(self, shape: _Optional[_Iterable[int]] = ..., bits: _Optional[bytes] = ...) -> None: ...

class ItemStatus(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ...) -> None: ...

class Timing(_message.Message):
    __slots__ = ("queue", "compute", "batch_rows")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_FIELD_NUMBER: _ClassVar[int]
    BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    queue: _duration_pb2.Duration
    compute: _duration_pb2.Duration
    batch_rows: int
    def __init__(self, queue: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., compute: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., batch_rows: _Optional[int] = ...) -> None: ...

class ListOperatorsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListOperatorsResponse(_message.Message):
    __slots__ = ("operators",)
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    operators: _containers.RepeatedCompositeFieldContainer[Operator]
    def __init__(self, operators: _Optional[_Iterable[_Union[Operator, _Mapping]]] = ...) -> None: ...

class Operator(_message.Message):
    __slots__ = ("name", "kind", "summary", "reference", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: OperatorKind
    summary: str
    reference: str
    properties: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[OperatorKind, str]] = ..., summary: _Optional[str] = ..., reference: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...
