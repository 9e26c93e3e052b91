"""Chakra's messages by Google's own library, which reads and writes what sim/io/chakra.cc does: the
part of mlcommons/chakra's et_def.proto that traces of training use."""
from google.protobuf import descriptor_pb2, descriptor_pool

try:
    from google.protobuf.message_factory import GetMessageClass
except ImportError:  # before 4.22
    from google.protobuf.message_factory import MessageFactory

    def GetMessageClass(descriptor):
        return MessageFactory().GetPrototype(descriptor)


FIELD = descriptor_pb2.FieldDescriptorProto
KINDS = {
    "string": FIELD.TYPE_STRING,
    "uint64": FIELD.TYPE_UINT64,
    "int64": FIELD.TYPE_INT64,
    "int32": FIELD.TYPE_INT32,
    "uint32": FIELD.TYPE_UINT32,
    "bool": FIELD.TYPE_BOOL,
    "double": FIELD.TYPE_DOUBLE,
    "sint64": FIELD.TYPE_SINT64,
    "fixed64": FIELD.TYPE_FIXED64,
}


def _message(file, name, fields, oneof=()):
    message = file.message_type.add(name=name)
    if oneof:
        message.oneof_decl.add(name="value")
    for number, kind, field_name in fields:
        repeated = kind.startswith("repeated ")
        kind = kind.removeprefix("repeated ")
        field = message.field.add(
            name=field_name,
            number=number,
            label=FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL,
        )
        if kind in KINDS:
            field.type = KINDS[kind]
        elif kind == "NodeType":
            field.type, field.type_name = FIELD.TYPE_ENUM, ".ChakraProtoMsg.NodeType"
        else:
            field.type, field.type_name = FIELD.TYPE_MESSAGE, f".ChakraProtoMsg.{kind}"
        if field_name in oneof:
            field.oneof_index = 0


def _classes():
    file = descriptor_pb2.FileDescriptorProto(
        name="et_def.proto", package="ChakraProtoMsg", syntax="proto3"
    )
    types = file.enum_type.add(name="NodeType")
    for number, name in enumerate(
        ("INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV",
         "COMM_COLL")  # fmt: skip
    ):
        types.value.add(name=f"{name}_NODE", number=number)
    values = [
        (3, "double", "double_val"), (7, "int32", "int32_val"), (9, "int64", "int64_val"),
        (11, "uint32", "uint32_val"), (13, "uint64", "uint64_val"), (17, "sint64", "sint64_val"),
        (21, "fixed64", "fixed64_val"), (27, "bool", "bool_val"), (29, "string", "string_val"),
    ]  # fmt: skip
    _message(file, "AttributeProto", [(1, "string", "name"), (2, "string", "doc_string"), *values],
             oneof=[v[2] for v in values])  # fmt: skip
    _message(file, "GlobalMetadata",
             [(1, "string", "version"), (2, "repeated AttributeProto", "attr")])  # fmt: skip
    texts = [(1, "string", "values"), (2, "string", "shapes"), (3, "string", "types")]
    _message(file, "IOInfo", texts)
    _message(file, "Node", [
        (1, "uint64", "id"), (2, "string", "name"), (3, "NodeType", "type"),
        (4, "repeated uint64", "ctrl_deps"), (5, "repeated uint64", "data_deps"),
        (6, "uint64", "start_time_micros"), (7, "uint64", "duration_micros"),
        (8, "IOInfo", "inputs"), (9, "IOInfo", "outputs"), (10, "repeated AttributeProto", "attr"),
    ])  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return [
        GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}"))
        for name in ("GlobalMetadata", "Node", "AttributeProto")
    ]


GlobalMetadata, Node, AttributeProto = _classes()
METADATA, MEM_LOAD, COMP, SEND, COLL = 1, 2, 4, 5, 7


def attribute(name, value):
    a = AttributeProto(name=name)
    if isinstance(value, bool):
        a.bool_val = value
    elif isinstance(value, int):
        a.int64_val = value
    else:
        a.string_val = value
    return a


def node(number, name, kind, after=(), micros=0, **attributes):
    n = Node(id=number, name=name, type=kind, data_deps=after, duration_micros=micros)
    n.attr.extend(attribute(k, v) for k, v in attributes.items())
    return n


def values_of(message):
    return {a.name: getattr(a, a.WhichOneof("value")) for a in message.attr}


def _varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write(path, nodes, metadata=None):
    out = bytearray()
    for message in [metadata or GlobalMetadata(version="0.0.4"), *nodes]:
        data = message.SerializeToString()
        out += _varint(len(data)) + data
    path.write_bytes(out)
    return path


def read(path):
    data, at, out = path.read_bytes(), 0, []
    while at < len(data):
        size = shift = 0
        while True:
            byte, at = data[at], at + 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        kind = Node if out else GlobalMetadata
        out.append(kind.FromString(data[at : at + size]))
        at += size
    return out[0], out[1:]
