"""What TensorFlow and torch call operations and their arguments, and what both call here."""

from __future__ import annotations

# What both frameworks have, by the names that TensorFlow and torch give their operations.
NAMES = {
    **dict.fromkeys(("Add", "AddV2", "BiasAdd", "AddN", "add"), "add"),
    **dict.fromkeys(("Sub", "sub"), "sub"),
    **dict.fromkeys(("Mul", "mul", "MulNoNan"), "mul"),
    **dict.fromkeys(("RealDiv", "Div", "DivNoNan", "div", "true_divide"), "div"),
    **dict.fromkeys(("Neg", "neg"), "neg"),
    **dict.fromkeys(("Pow", "pow"), "pow"),
    **dict.fromkeys(
        ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "mm", "bmm", "mv", "dot"), "matmul"
    ),
    **dict.fromkeys(("Conv2D", "Conv3D", "DepthwiseConv2dNative", "convolution"), "conv"),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2"), "conv_transpose"),
    **dict.fromkeys(("Softmax", "_softmax"), "softmax"),
    **dict.fromkeys(("LogSoftmax", "_log_softmax"), "log_softmax"),
    **dict.fromkeys(("Mean", "mean"), "mean"),
    **dict.fromkeys(("Sum", "sum"), "sum"),
    **dict.fromkeys(("Prod", "prod"), "prod"),
    **dict.fromkeys(("Max", "amax", "max"), "max"),
    **dict.fromkeys(("Min", "amin", "min"), "min"),
    **dict.fromkeys(("Maximum", "maximum"), "maximum"),
    **dict.fromkeys(("Minimum", "minimum"), "minimum"),
    **dict.fromkeys(("SelectV2", "Select", "where"), "where"),
    **dict.fromkeys(("ConcatV2", "Concat", "cat"), "concat"),
    **dict.fromkeys(("Pack", "stack"), "stack"),
    **dict.fromkeys(("Unpack", "unbind"), "unstack"),
    **dict.fromkeys(("Split", "SplitV", "split", "split_with_sizes", "unsafe_split", "chunk"), "split"),
    **dict.fromkeys(
        ("Pad", "PadV2", "MirrorPad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d"), "pad"
    ),
    **dict.fromkeys(("Tile", "repeat"), "tile"),
    **dict.fromkeys(
        ("GatherV2", "GatherNd", "ResourceGather", "embedding", "index_select", "gather", "index"), "gather"
    ),
    **dict.fromkeys(("ReverseV2", "flip"), "flip"),
    **dict.fromkeys(("Roll", "roll"), "roll"),
    **dict.fromkeys(("ArgMax", "argmax"), "argmax"),
    **dict.fromkeys(("TopKV2", "topk"), "topk"),
    **dict.fromkeys(("Equal", "eq"), "eq"),
    **dict.fromkeys(("NotEqual", "ne"), "ne"),
    **dict.fromkeys(("Greater", "gt"), "gt"),
    **dict.fromkeys(("GreaterEqual", "ge"), "ge"),
    **dict.fromkeys(("Less", "lt"), "lt"),
    **dict.fromkeys(("LessEqual", "le"), "le"),
    **dict.fromkeys(("LogicalNot", "logical_not", "bitwise_not"), "not"),
    **dict.fromkeys(("LogicalAnd", "logical_and", "bitwise_and"), "and"),
    **dict.fromkeys(("LogicalOr", "logical_or", "bitwise_or"), "or"),
    **dict.fromkeys(("Any", "any"), "any"),
    **dict.fromkeys(("All", "all"), "all"),
    **dict.fromkeys(("Cumsum", "cumsum"), "cumsum"),
    **dict.fromkeys(("AvgPool", "AvgPool3D", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d"), "avg_pool"),
    **dict.fromkeys(
        ("MaxPool", "MaxPool3D", "max_pool2d_with_indices", "max_pool3d_with_indices"), "max_pool"
    ),
    **dict.fromkeys(("native_layer_norm",), "layer_norm"),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit_no_training"), "batch_norm"),
    **dict.fromkeys(("native_group_norm",), "group_norm"),
    **dict.fromkeys(("Abs",), "abs"),
    **dict.fromkeys(("LeakyRelu",), "leaky_relu"),
    **dict.fromkeys(("clamp", "ClipByValue", "clamp_min", "clamp_max", "hardtanh"), "clip"),
}
# Of one number each, as an activation is, and called alike in both but for capitals.
FUNCTIONS = frozenset(
    (
        "relu",
        "relu6",
        "elu",
        "selu",
        "tanh",
        "sigmoid",
        "softplus",
        "softsign",
        "exp",
        "log",
        "sqrt",
        "square",
        "abs",
        "sin",
        "cos",
    )
)
# Of operations by their frameworks' names, which argument is what the call says, and no operand: its place from the end or the start.
SAID: dict[str, dict[int, str]] = {
    **{
        name: {1: "axis"}
        for name in ("Mean", "Sum", "Prod", "Max", "Min", "Any", "All", "Cumsum", "ReverseV2", "ArgMax")
    },
    "ConcatV2": {-1: "axis"},
    "Tile": {1: "times"},
    **{name: {1: "padding"} for name in ("Pad", "PadV2", "MirrorPad")},
    "Roll": {1: "by", 2: "axis"},
    "GatherV2": {2: "axis"},
    "Split": {0: "axis"},
    "SplitV": {1: "sizes", 2: "axis"},
    "OneHot": {1: "depth", 2: "on", 3: "off"},
    "TopKV2": {1: "k"},
    "bucketize": {1: "boundaries"},
}
# Settings of TensorFlow's that say how and not what.
IGNORED = frozenset(
    (
        *(
            "T",
            "dtype",
            "SrcT",
            "DstT",
            "Truncate",
            "N",
            "Tidx",
            "Index",
            "Tshape",
            "Tpaddings",
            "Tparams",
            "Tindices",
        ),
        *(
            "Taxis",
            "Tshift",
            "Tmultiples",
            "Tlen",
            "Tdim",
            "Tperm",
            "TI",
            "U",
            "V",
            "Tout",
            "out_type",
            "Tsplits",
        ),
        *(
            "data_format",
            "grad_a",
            "grad_b",
            "grad_x",
            "grad_y",
            "adj_x",
            "adj_y",
            "transpose_a",
            "transpose_b",
        ),
        *(
            "num",
            "num_split",
            "incompatible_shape_error",
            "explicit_paddings",
            "use_cudnn_on_gpu",
            "validate_indices",
        ),
        *("index_type", "Tk", "sorted", "on", "off"),
        *("batch_dims", "swap", "memory_format", "layout", "device", "pin_memory", "non_blocking"),
    )
)
# How torch calls what TensorFlow calls otherwise.
CALLED = {
    "dim": "axis",
    "dims": "axis",
    "shifts": "by",
    "repeats": "times",
    "pad": "padding",
    "stride": "strides",
    "eps": "epsilon",
}
# What convolutions are told besides, as it usually is.
USUAL = {"output_padding": 0, "groups": 1, "dilation": 1, "dilations": 1, "transposed": False}
# What torch's operations are told besides, and what says nothing.
SILENT = frozenset(
    (
        "half_to_float",
        "keepdim",
        "keep_dims",
        "output_mask",
        "normalized_shape",
        "self",
        "other",
        "exponent",
        "value",
    )
)
