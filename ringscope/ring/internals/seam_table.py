"""All private names of Keras, TensorFlow and Horovod that ring uses, as a table; their authors may change them.

A seam is one thing that ring does, with the names that it needs. If a release lacks one of these names:

    needed     ring refuses to start, and names the release to install
    nicety     ring works without it, and prints that
    form       a form of layers (forms/) is left out of compiled steps, and ring prints that; the numbers stay the same

`seams` looks the names up. tests/ring/internals/test_seams.py compares the table with ring's sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

NEEDED, NICETY, FORM = "needed", "nicety", "form"


class Seam(NamedTuple):
    name: str  # what ring does with the names, in words, or the form's name
    kind: str
    touches: Mapping[str, tuple[str, ...]]  # module -> names in the module


# The first line of a seam is its kind and name. Below it are modules, and the names used from them; `Class.name` may
# also be an attribute that only instances have. Of names with | between them a release needs one alone.
# A line that is indented twice continues the line above.
TABLE = """
needed: training
    keras.src.models.model Model.fit Model.evaluate Model.predict Model.stop_training Model.train_step
        Model.make_train_function Model._get_metrics_result_or_logs Model.train_on_batch Model.compute_loss
        Model._compute_loss Model._aggregate_additional_loss Model._compile_loss Model._compile_metrics
        Model._compile_config Model._loss_tracker
    keras.src.trainers.compile_utils CompileLoss.call CompileLoss._flat_losses CompileMetrics._user_metrics
        CompileMetrics._user_weighted_metrics CompileMetrics.update_state CompileMetrics.result
    keras.src.layers.layer Layer._flatten_layers Layer._losses Layer._loss_ids Layer._get_own_losses
        Layer._non_trainable_variables
    keras.src.losses.loss Loss.__call__ reduce_weighted_values apply_mask
    keras.src.models.functional Functional
    keras.src.models.sequential Sequential._functional
    keras.src.utils.python_utils pythonify_logs
    keras.src.callbacks.callback_list CallbackList._progbar
    keras.src.backend name_scope compute_output_spec standardize_data_format
    keras.src.backend.common.variables AutocastScope Variable._ndim
    keras.src.backend.tensorflow.rnn cudnn_ok
needed: optimizers
    keras.src.optimizers.base_optimizer BaseOptimizer.apply BaseOptimizer._trainable_variables
        BaseOptimizer._learning_rate BaseOptimizer._iterations
needed: sharded optimizers
    keras.src.optimizers.base_optimizer BaseOptimizer._trainable_variables_indices BaseOptimizer._var_key
        BaseOptimizer._clip_gradients BaseOptimizer._exclude_from_weight_decay
needed: each rank's share of the data
    keras.src.trainers.data_adapters get_data_adapter is_grain_dataset is_torch_dataloader
    keras.src.trainers.data_adapters.array_data_adapter can_convert_arrays
    keras.src.trainers.data_adapters.array_slicing train_validation_split
needed: seeds
    keras.src.backend.common.global_state get_global_attribute
    keras.src.random.seed_generator global_seed_generator draw_seed
    tensorflow.python.data.util.random_seed get_seed
    tensorflow.python.eager.context context global_seed Context._rng
needed: losses of the joined batch
    keras.src.backend.common.masking get_keras_mask set_keras_mask
    tensorflow.python.eager.backprop GradientTape.gradient
    tensorflow.python.framework.func_graph FuncGraph
    tensorflow.python.framework.ops Operation._id
    tensorflow.python.ops.gen_array_ops
    tensorflow.python.ops.gen_math_ops
    tensorflow.python.ops.resource_variable_ops ResourceVariable
    tensorflow.python.pywrap_tfe TFE_Py_TapeSetRestartOnThread TFE_Py_TapeSetStopOnThread
needed: synchronised normalisation
    keras.src.layers.normalization.batch_normalization BatchNormalization._moments
        BatchNormalization._reduction_axes
needed: compiled steps
    tensorflow.python.autograph.core.ag_ctx ControlStatusCtx Status.ENABLED
    tensorflow.python.eager.polymorphic_function.autograph_util py_func_from_autograph
    tensorflow.python.eager.polymorphic_function.polymorphic_function Function.__call__ Function._autograph
        Function._experimental_autograph_options Function._omit_frequent_tracing_warning
    tensorflow.python.ops.control_flow_util GraphOrParentsInXlaContext
    tensorflow.compiler.tf2xla.python.xla call_module optimization_barrier dot_general dynamic_slice
        dynamic_update_slice
    tensorflow.compiler.xla.xla_data_pb2 DotDimensionNumbers
needed: messages between ranks
    horovod.runner.http.http_client put_data_into_kvstore read_data_from_kvstore
    horovod.tensorflow.mpi_ops _basics
needed: elastic training
    horovod.runner.elastic.worker WorkerNotificationManager
    keras.src.backend.tensorflow.trainer TFEpochIterator
    keras.src.models.model Model._initial_epoch
nicety: a check of embeddings' ids
    keras.src.models.functional Functional._inputs_struct
    keras.src.ops.operation Operation._inbound_nodes
nicety: layers run before the compiled step
    keras.src.models.functional Functional._inputs Functional._inputs_struct Functional._outputs
        Functional._outputs_struct Functional._nodes_by_depth Functional._standardize_inputs
    keras.src.layers.layer Layer._convert_input_args
    keras.src.backend.common.masking get_keras_mask
nicety: a check of sizes within branches and loops
    tensorflow.python.framework.func_graph FuncGraph._get_function
nicety: variables made before the first step
    keras.src.models.model Model._symbolic_build
    keras.src.ops.operation Operation._post_build
nicety: undamaged files when all ranks save to one path
    keras.src.legacy.saving.legacy_h5_format save_model_to_hdf5
    keras.src.saving.saving_lib save_model save_weights_only
    tensorflow.python.checkpoint.checkpoint Checkpoint._write Checkpoint.read
nicety: a warning about models that ring.distribute was not given
    keras.src.models.model Model.fit Model.train_on_batch
nicety: warnings about Horovod's calls that a script no longer needs
    horovod._keras create_distributed_optimizer load_model
    horovod._keras.callbacks BroadcastGlobalVariablesCallbackImpl
    horovod.keras.callbacks BestModelCheckpoint
    horovod.tensorflow.keras.callbacks BestModelCheckpoint
nicety: lines of their own beside a progress bar
    keras.src.utils.io_utils print_msg
nicety: a separate XLA cache for deterministic training
    tensorflow.python.framework.config is_op_determinism_enabled
nicety: steps called by their graphs
    tensorflow.python.eager.polymorphic_function.concrete_function ConcreteFunction._call_flat
nicety: freeing the memory of models that are gone
    tensorflow.python.framework.ops RegisterGradient.__call__ RegisterGradient._op_type gradient_registry
    tensorflow.python.framework.registry Registry._registry
nicety: steps left to XLA's own passes
    tensorflow.python.eager.context FunctionCallOptions Context.function_call_options
    tensorflow.core.protobuf.config_pb2 ConfigProto
nicety: gradients exchanged while the backward pass runs
    tensorflow.python.framework.ops Operation._update_input
nicety: shares of data sets taken before the work
    tensorflow.python.data.ops.batch_op _BatchDataset._batch_size _BatchDataset._drop_remainder
        _ParallelBatchDataset._batch_size _ParallelBatchDataset._deterministic
        _ParallelBatchDataset._num_parallel_calls
    tensorflow.python.data.ops.cache_op CacheDataset._filename
    tensorflow.python.data.ops.map_op _MapDataset._map_func _ParallelMapDataset._num_parallel_calls
        _ParallelMapDataset._deterministic
    tensorflow.python.data.ops.prefetch_op _PrefetchDataset._buffer_size
    tensorflow.python.data.ops.shuffle_op _ShuffleDataset._seed _ShuffleDataset._seed2 _ShuffleDataset._buffer_size
        _ShuffleDataset._reshuffle_each_iteration
    tensorflow.python.data.ops.structured_function StructuredFunctionWrapper._func
    tensorflow.python.data.ops.dataset_ops DatasetV2._inputs
    tensorflow.python.framework.op_def_registry get
nicety: a comparison of the ranks' data sets
    tensorflow.python.data.ops.from_tensor_slices_op _TensorSliceDataset._tensors
    tensorflow.python.data.ops.shard_op _ShardDataset._num_shards _ShardDataset._index
    tensorflow.python.data.ops.shuffle_op _ShuffleDataset._seed2
form: masks
    keras.src.backend nn._apply_masks|ops.nn._apply_masks nn._get_large_negative|ops.nn._get_large_negative
form: layers
    keras.src.layers.normalization.batch_normalization BatchNormalization._moments
    keras.src.layers.rnn.conv_lstm ConvLSTMCell
    keras.src.layers.attention.multi_head_attention MultiHeadAttention._query_dense MultiHeadAttention._key_dense
        MultiHeadAttention._value_dense MultiHeadAttention._attention_axes MultiHeadAttention._combine_equation
form: attention_dropout
    keras.src.layers.attention.multi_head_attention MultiHeadAttention._compute_attention
        MultiHeadAttention._dropout_layer
    keras.src.layers.attention.grouped_query_attention GroupedQueryAttention._compute_attention
        GroupedQueryAttention._dropout_layer
form: attention
    keras.src.backend nn.dot_product_attention|ops.nn.dot_product_attention
form: bare
    tensorflow.python.util.tf_stack extract_stack
form: shared
    tensorflow.python.framework.ops _create_graph_constant
form: translated
    tensorflow.python.framework.func_graph FuncGraph._create_op_internal FuncGraph.capture
    tensorflow.python.ops.gen_nn_ops bias_add_grad
form: written
    tensorflow.python.ops.gen_math_ops batch_mat_mul_v2
    tensorflow.python.ops.gen_linalg_ops einsum
form: products
    keras.src.backend numpy.einsum|ops.numpy.einsum
form: padded_products
    keras.src.backend numpy.matmul|ops.numpy.matmul
form: gelu
    keras.src.backend nn.gelu|ops.nn.gelu
form: depthwise
    keras.src.backend nn.conv|ops.nn.conv nn.depthwise_conv|ops.nn.depthwise_conv
form: hashed
    keras.src.backend random.dropout
form: pointwise
    tensorflow.python.ops.gen_nn_ops conv2d
form: dilated
    tensorflow.python.ops.nn_ops device_context
    tensorflow.python.ops.nn_impl device_context
form: resized
    keras.src.backend image.resize|ops.image.resize
    tensorflow.python.ops.gen_image_ops scale_and_translate resize_bilinear resize_nearest_neighbor resize_bicubic
    tensorflow.python.framework.tensor_util constant_value_as_shape
form: augmented
    keras.src.backend numpy.bincount|ops.numpy.bincount
    keras.src.layers.preprocessing.image_preprocessing.equalization Equalization._custom_histogram_fixed_width
    keras.src.layers.preprocessing.image_preprocessing.random_crop RandomCrop.transform_images
form: sliced
    tensorflow.python.ops.gen_array_ops _slice strided_slice
    tensorflow.compiler.tf2xla.python.xla dynamic_slice dynamic_update_slice
form: elastic
    keras.src.backend image.elastic_transform|ops.image.elastic_transform standardize_data_format
    keras.src.layers.preprocessing.image_preprocessing.random_elastic_transform RandomElasticTransform._transform_images
    keras.src.random.seed_generator draw_seed
form: gathered
    keras.src.backend numpy.take_along_axis|ops.numpy.take_along_axis
    tensorflow.python.ops.gen_array_ops gather_v2
form: lookups
    tensorflow.python.ops.lookup_ops InitializableLookupTableBase.lookup StaticHashTable.export
form: hash_buckets
    keras.src.layers.preprocessing.hashing Hashing._hash_values_to_bins
form: last_axis
    keras.src.ops.nn _layer_normalization _rms_normalization
form: draws
    tensorflow.python.framework.random_seed get_seed
    tensorflow.python.ops.gen_random_ops random_standard_normal random_uniform truncated_normal multinomial
form: optimizers
    keras.src.optimizers.base_optimizer BaseOptimizer._backend_update_step BaseOptimizer._get_variable_index
        BaseOptimizer._use_weight_decay BaseOptimizer._apply_weight_decay
    keras.src.optimizers.adam Adam._momentums Adam._velocities
"""


def _parsed() -> tuple[Seam, ...]:
    found: list[tuple[str, str, dict[str, list[str]]]] = []
    names: list[str] = []
    for line in TABLE.strip().splitlines():
        words = line.split()
        if not line.startswith(" "):
            kind, _, name = line.partition(": ")
            found.append((name, kind, {}))
            continue
        if not line.startswith("        "):
            names = found[-1][2].setdefault(words.pop(0), [])
        names += words
    return tuple(Seam(name, kind, {of: tuple(those) for of, those in touched.items()}) for name, kind, touched in found)


SEAMS = _parsed()
