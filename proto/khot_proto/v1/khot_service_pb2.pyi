from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from khot_proto.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIORITY_UNSPECIFIED: _ClassVar[Priority]
    PRIORITY_INTERACTIVE: _ClassVar[Priority]
    PRIORITY_BULK: _ClassVar[Priority]

class MaskFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MASK_FORMAT_UNSPECIFIED: _ClassVar[MaskFormat]
    MASK_FORMAT_BITS: _ClassVar[MaskFormat]
    MASK_FORMAT_INDICES: _ClassVar[MaskFormat]
    MASK_FORMAT_DENSE: _ClassVar[MaskFormat]

class OperatorKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATOR_KIND_UNSPECIFIED: _ClassVar[OperatorKind]
    OPERATOR_KIND_RELAXATION: _ClassVar[OperatorKind]
    OPERATOR_KIND_DESIGN: _ClassVar[OperatorKind]
    OPERATOR_KIND_ESTIMATOR: _ClassVar[OperatorKind]
PRIORITY_UNSPECIFIED: Priority
PRIORITY_INTERACTIVE: Priority
PRIORITY_BULK: Priority
MASK_FORMAT_UNSPECIFIED: MaskFormat
MASK_FORMAT_BITS: MaskFormat
MASK_FORMAT_INDICES: MaskFormat
MASK_FORMAT_DENSE: MaskFormat
OPERATOR_KIND_UNSPECIFIED: OperatorKind
OPERATOR_KIND_RELAXATION: OperatorKind
OPERATOR_KIND_DESIGN: OperatorKind
OPERATOR_KIND_ESTIMATOR: OperatorKind

class RelaxRequest(_message.Message):
    __slots__ = ("items", "priority")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[RelaxItem]
    priority: Priority
    def __init__(self, items: _Optional[_Iterable[_Union[RelaxItem, _Mapping]]] = ..., priority: _Optional[_Union[Priority, str]] = ...) -> None: ...

class RelaxVjpRequest(_message.Message):
    __slots__ = ("items", "priority")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[RelaxItem]
    priority: Priority
    def __init__(self, items: _Optional[_Iterable[_Union[RelaxItem, _Mapping]]] = ..., priority: _Optional[_Union[Priority, str]] = ...) -> None: ...

class RelaxItem(_message.Message):
    __slots__ = ("operator", "scores", "k", "tau", "options", "cotangent", "diagnostics")
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    TAU_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    COTANGENT_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTICS_FIELD_NUMBER: _ClassVar[int]
    operator: str
    scores: _tensor_pb2.Tensor
    k: _containers.RepeatedScalarFieldContainer[float]
    tau: _containers.RepeatedScalarFieldContainer[float]
    options: _struct_pb2.Struct
    cotangent: _tensor_pb2.Tensor
    diagnostics: bool
    def __init__(self, operator: _Optional[str] = ..., scores: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., k: _Optional[_Iterable[float]] = ..., tau: _Optional[_Iterable[float]] = ..., options: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., cotangent: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., diagnostics: bool = ...) -> None: ...

class RelaxResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[RelaxResult]
    def __init__(self, results: _Optional[_Iterable[_Union[RelaxResult, _Mapping]]] = ...) -> None: ...

class RelaxVjpResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[RelaxResult]
    def __init__(self, results: _Optional[_Iterable[_Union[RelaxResult, _Mapping]]] = ...) -> None: ...

class RelaxResult(_message.Message):
    __slots__ = ("status", "soft", "timing", "gradients", "diagnostics", "algorithm")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SOFT_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTICS_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    status: ItemStatus
    soft: _tensor_pb2.Tensor
    timing: Timing
    gradients: Gradients
    diagnostics: Diagnostics
    algorithm: str
    def __init__(self, status: _Optional[_Union[ItemStatus, _Mapping]] = ..., soft: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., gradients: _Optional[_Union[Gradients, _Mapping]] = ..., diagnostics: _Optional[_Union[Diagnostics, _Mapping]] = ..., algorithm: _Optional[str] = ...) -> None: ...

class SampleRequest(_message.Message):
    __slots__ = ("items", "priority")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[SampleItem]
    priority: Priority
    def __init__(self, items: _Optional[_Iterable[_Union[SampleItem, _Mapping]]] = ..., priority: _Optional[_Union[Priority, str]] = ...) -> None: ...

class SampleVjpRequest(_message.Message):
    __slots__ = ("items", "priority")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[SampleItem]
    priority: Priority
    def __init__(self, items: _Optional[_Iterable[_Union[SampleItem, _Mapping]]] = ..., priority: _Optional[_Union[Priority, str]] = ...) -> None: ...

class SampleItem(_message.Message):
    __slots__ = ("operator", "scores", "k", "tau", "seed", "num_samples", "format", "include_pi", "options", "cotangent", "losses", "diagnostics")
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    TAU_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_PI_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    COTANGENT_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTICS_FIELD_NUMBER: _ClassVar[int]
    operator: str
    scores: _tensor_pb2.Tensor
    k: _containers.RepeatedScalarFieldContainer[float]
    tau: _containers.RepeatedScalarFieldContainer[float]
    seed: int
    num_samples: int
    format: MaskFormat
    include_pi: bool
    options: _struct_pb2.Struct
    cotangent: _tensor_pb2.Tensor
    losses: Losses
    diagnostics: bool
    def __init__(self, operator: _Optional[str] = ..., scores: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., k: _Optional[_Iterable[float]] = ..., tau: _Optional[_Iterable[float]] = ..., seed: _Optional[int] = ..., num_samples: _Optional[int] = ..., format: _Optional[_Union[MaskFormat, str]] = ..., include_pi: bool = ..., options: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., cotangent: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., losses: _Optional[_Union[Losses, _Mapping]] = ..., diagnostics: bool = ...) -> None: ...

class Losses(_message.Message):
    __slots__ = ("values", "given", "leave_one_out")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    GIVEN_FIELD_NUMBER: _ClassVar[int]
    LEAVE_ONE_OUT_FIELD_NUMBER: _ClassVar[int]
    values: _tensor_pb2.Tensor
    given: _tensor_pb2.Tensor
    leave_one_out: bool
    def __init__(self, values: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., given: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., leave_one_out: bool = ...) -> None: ...

class SampleResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SampleResult]
    def __init__(self, results: _Optional[_Iterable[_Union[SampleResult, _Mapping]]] = ...) -> None: ...

class SampleVjpResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SampleResult]
    def __init__(self, results: _Optional[_Iterable[_Union[SampleResult, _Mapping]]] = ...) -> None: ...

class SampleResult(_message.Message):
    __slots__ = ("status", "mask", "seed", "timing", "relaxed", "pi", "gradients", "diagnostics", "algorithm")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    RELAXED_FIELD_NUMBER: _ClassVar[int]
    PI_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTICS_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    status: ItemStatus
    mask: Mask
    seed: int
    timing: Timing
    relaxed: _tensor_pb2.Tensor
    pi: _tensor_pb2.Tensor
    gradients: Gradients
    diagnostics: Diagnostics
    algorithm: str
    def __init__(self, status: _Optional[_Union[ItemStatus, _Mapping]] = ..., mask: _Optional[_Union[Mask, _Mapping]] = ..., seed: _Optional[int] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., relaxed: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., pi: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., gradients: _Optional[_Union[Gradients, _Mapping]] = ..., diagnostics: _Optional[_Union[Diagnostics, _Mapping]] = ..., algorithm: _Optional[str] = ...) -> None: ...

class Mask(_message.Message):
    __slots__ = ("shape", "bits", "indices", "dense")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    INDICES_FIELD_NUMBER: _ClassVar[int]
    DENSE_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    bits: bytes
    indices: Indices
    dense: _tensor_pb2.Tensor
    def __init__(self, shape: _Optional[_Iterable[int]] = ..., bits: _Optional[bytes] = ..., indices: _Optional[_Union[Indices, _Mapping]] = ..., dense: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Indices(_message.Message):
    __slots__ = ("counts", "units")
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    units: _tensor_pb2.Tensor
    def __init__(self, counts: _Optional[_Iterable[int]] = ..., units: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Gradients(_message.Message):
    __slots__ = ("scores", "k", "tau")
    SCORES_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    TAU_FIELD_NUMBER: _ClassVar[int]
    scores: _tensor_pb2.Tensor
    k: _containers.RepeatedScalarFieldContainer[float]
    tau: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, scores: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., k: _Optional[_Iterable[float]] = ..., tau: _Optional[_Iterable[float]] = ...) -> None: ...

class Diagnostics(_message.Message):
    __slots__ = ("iterations", "residual")
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    RESIDUAL_FIELD_NUMBER: _ClassVar[int]
    iterations: _containers.RepeatedScalarFieldContainer[int]
    residual: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, iterations: _Optional[_Iterable[int]] = ..., residual: _Optional[_Iterable[float]] = ...) -> None: ...

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
    __slots__ = ("queue_ns", "batch_ns", "compute_ns", "batch_rows")
    QUEUE_NS_FIELD_NUMBER: _ClassVar[int]
    BATCH_NS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_NS_FIELD_NUMBER: _ClassVar[int]
    BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    queue_ns: int
    batch_ns: int
    compute_ns: int
    batch_rows: int
    def __init__(self, queue_ns: _Optional[int] = ..., batch_ns: _Optional[int] = ..., compute_ns: _Optional[int] = ..., batch_rows: _Optional[int] = ...) -> None: ...

class StreamRequest(_message.Message):
    __slots__ = ("id", "relax", "relax_vjp", "sample", "sample_vjp")
    ID_FIELD_NUMBER: _ClassVar[int]
    RELAX_FIELD_NUMBER: _ClassVar[int]
    RELAX_VJP_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_VJP_FIELD_NUMBER: _ClassVar[int]
    id: int
    relax: RelaxRequest
    relax_vjp: RelaxVjpRequest
    sample: SampleRequest
    sample_vjp: SampleVjpRequest
    def __init__(self, id: _Optional[int] = ..., relax: _Optional[_Union[RelaxRequest, _Mapping]] = ..., relax_vjp: _Optional[_Union[RelaxVjpRequest, _Mapping]] = ..., sample: _Optional[_Union[SampleRequest, _Mapping]] = ..., sample_vjp: _Optional[_Union[SampleVjpRequest, _Mapping]] = ...) -> None: ...

class StreamResponse(_message.Message):
    __slots__ = ("id", "relax", "relax_vjp", "sample", "sample_vjp", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    RELAX_FIELD_NUMBER: _ClassVar[int]
    RELAX_VJP_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_VJP_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: int
    relax: RelaxResponse
    relax_vjp: RelaxVjpResponse
    sample: SampleResponse
    sample_vjp: SampleVjpResponse
    error: ItemStatus
    def __init__(self, id: _Optional[int] = ..., relax: _Optional[_Union[RelaxResponse, _Mapping]] = ..., relax_vjp: _Optional[_Union[RelaxVjpResponse, _Mapping]] = ..., sample: _Optional[_Union[SampleResponse, _Mapping]] = ..., sample_vjp: _Optional[_Union[SampleVjpResponse, _Mapping]] = ..., error: _Optional[_Union[ItemStatus, _Mapping]] = ...) -> None: ...

class ListOperatorsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListOperatorsResponse(_message.Message):
    __slots__ = ("operators", "limits", "devices", "version")
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    operators: _containers.RepeatedCompositeFieldContainer[Operator]
    limits: Limits
    devices: _containers.RepeatedScalarFieldContainer[str]
    version: str
    def __init__(self, operators: _Optional[_Iterable[_Union[Operator, _Mapping]]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., devices: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ...) -> None: ...

class Operator(_message.Message):
    __slots__ = ("name", "kind", "summary", "reference", "properties", "options")
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
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: OperatorKind
    summary: str
    reference: str
    properties: _containers.ScalarMap[str, str]
    options: _struct_pb2.Struct
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[OperatorKind, str]] = ..., summary: _Optional[str] = ..., reference: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., options: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_message_bytes", "max_queue_elements", "max_tenant_queue_elements", "max_batch_rows", "max_batch_elements", "max_caller_calls", "max_stream_calls")
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUE_ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    MAX_TENANT_QUEUE_ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    MAX_CALLER_CALLS_FIELD_NUMBER: _ClassVar[int]
    MAX_STREAM_CALLS_FIELD_NUMBER: _ClassVar[int]
    max_message_bytes: int
    max_queue_elements: int
    max_tenant_queue_elements: int
    max_batch_rows: int
    max_batch_elements: int
    max_caller_calls: int
    max_stream_calls: int
    def __init__(self, max_message_bytes: _Optional[int] = ..., max_queue_elements: _Optional[int] = ..., max_tenant_queue_elements: _Optional[int] = ..., max_batch_rows: _Optional[int] = ..., max_batch_elements: _Optional[int] = ..., max_caller_calls: _Optional[int] = ..., max_stream_calls: _Optional[int] = ...) -> None: ...
