"""The strategies of both frameworks, and what each leaves to choose. None of it may change the curve."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from parity.common.spec.base import PositiveInt, Spec

Framework = Literal["tensorflow", "torch"]


class Options(Spec):
    """What a strategy leaves to choose: nothing."""

    # Whether a replica is a process of its own.
    process_per_replica: ClassVar[bool] = True


class OneProcess(Options):
    """All replicas, or the only one, in one process."""

    process_per_replica: ClassVar[bool] = False


class Mirrored(OneProcess):
    """MirroredStrategy: all replicas in one process."""

    cross_device: Literal["one_device", "hierarchical_copy", "nccl"] = Field(
        default="one_device", description="what reduces gradients: tf.distribute's cross_device_ops"
    )


class MultiWorker(Options):
    """MultiWorkerMirroredStrategy: processes that meet through TF_CONFIG."""

    replicas_per_worker: PositiveInt = Field(default=1, description="devices of each worker process")
    communication: Literal["auto", "ring", "nccl"] = Field(
        default="ring", description="collective implementation"
    )


class DataParallel(OneProcess):
    """nn.DataParallel: one process that scatters each batch over its GPUs."""


class Blocks(Options):
    """Strategies that can treat the model block by block.

    A block is a child of the model that has children of its own, such as a transformer block; in a
    model without such children, every child that has parameters. Where all blocks are inside one child,
    as between an embedding and the logits tied to it, they are that child's.
    """

    checkpoint: bool = Field(
        default=False,
        description="keep only the blocks' inputs for the backward pass, compute the rest again",
    )


class DDP(Blocks):
    """DistributedDataParallel."""

    find_unused_parameters: bool = Field(default=False, description="allow parameters that get no gradient")
    gradient_as_bucket_view: bool = Field(default=True, description="let gradients be views into the buckets")
    static_graph: bool = Field(default=False, description="let DDP assume that the graph never changes")
    bucket_mb: PositiveInt = Field(
        default=25, description="gradients are reduced in buckets of this many MiB"
    )


class FSDP1(Blocks):
    """FullyShardedDataParallel, the first of its name."""

    sharding: Literal["full_shard", "shard_grad_op", "no_shard", "hybrid_shard"] = Field(
        default="full_shard", description="what is divided over the ranks"
    )
    shard_group: PositiveInt | None = Field(
        default=None, description="hybrid_shard: replicas that share one copy; copies are replicated"
    )
    wrap: Literal["root", "blocks"] = Field(
        default="root", description="what is sharded as a unit: the whole model, or each block"
    )

    @model_validator(mode="after")
    def _hybrid_has_groups(self) -> FSDP1:
        if self.sharding != "hybrid_shard" and self.shard_group is not None:
            raise ValueError("shard_group belongs to sharding=hybrid_shard")
        # With groups of one, FSDP only warns, and never synchronises.
        if self.sharding == "hybrid_shard" and (self.shard_group or 0) < 2:
            raise ValueError(
                "hybrid_shard needs a shard_group of 2 or more;"
                " where nothing is to be sharded take sharding=no_shard"
            )
        return self


class FSDP2(Blocks):
    """fully_shard."""

    reshard: bool | None = Field(
        default=None,
        description="free whole parameters between forward and backward pass; default: all but the root's",
    )
    shard_group: PositiveInt | None = Field(
        default=None, description="hybrid sharding: replicas that share one copy; default: all of them"
    )
    wrap: Literal["root", "blocks"] = Field(
        default="root", description="what is sharded as a unit: the whole model, or each block"
    )
    cpu_offload: bool = Field(default=False, description="keep shards in host memory")


class DeepSpeed(Options):
    """DeepSpeed ZeRO."""

    stage: Literal[1, 2, 3] = Field(
        default=2, description="1 shards optimizer slots, 2 gradients too, 3 parameters too"
    )
    offload_optimizer: bool = Field(default=False, description="keep the optimizer's slots in host memory")
    offload_parameters: bool = Field(default=False, description="stage 3 only")
    config: str | None = Field(
        default=None, description="a DeepSpeed JSON file to start from; its 'auto' is resolved"
    )

    @model_validator(mode="after")
    def _parameters_of_stage_3(self) -> DeepSpeed:
        if self.offload_parameters and self.stage != 3:
            raise ValueError(
                f"offload_parameters needs stage 3, which divides parameters, received {self.stage}"
            )
        return self


class TensorParallel(Options):
    """Attention heads and feed-forward columns divided over ranks, through DTensor."""

    ranks: PositiveInt = Field(default=2, description="that share one replica")
