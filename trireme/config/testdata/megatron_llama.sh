#!/bin/bash
# Llama 3 8B on one node. Words after -- are Megatron's, the rest is shell.
export CUDA_DEVICE_MAX_CONNECTIONS=1

GPUS_PER_NODE=8
MASTER_ADDR=${MASTER_ADDR:-localhost}
NNODES=${SLURM_NNODES:-"1"}
CHECKPOINT_PATH=$1   # given by the caller
DATA=/data/tokens
SEQ=8192
TP=2

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NNODES
    --master_addr $MASTER_ADDR
)

MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length ${SEQ}
    --max-position-embeddings "${SEQ}"
    --position-embedding-type rope
    --rotary-base 500000
    --normalization RMSNorm
    --norm-epsilon 1e-5
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --vocab-size 128256
)

# The older way to keep flags together.
TRAINING_ARGS="
    --micro-batch-size 1 \
    --global-batch-size 128 \
    --train-iters 5000 \
    --lr 3e-4 \
    --min-lr 3.0e-5 \
    --lr-decay-style cosine \
    --lr-warmup-iters 100 \
    --weight-decay 0.1 \
    --adam-beta1 0.9 --adam-beta2 0.95 \
    --clip-grad 1.0 \
    --bf16
"

torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    "${MODEL_ARGS[@]}" $TRAINING_ARGS \
    --tensor-model-parallel-size ${TP} \
    --sequence-parallel \
    --pipeline-model-parallel-size 2 \
    --num-layers-per-virtual-pipeline-stage 8 \
    --use-distributed-optimizer --overlap-grad-reduce \
    --data-path 0.3 $DATA/web_text_document 0.7 ${DATA}/code_text_document \
    --tokenizer-model tok.model --save $CHECKPOINT_PATH --save-interval 500 \
    --distributed-timeout-minutes 5 --log-interval 10 2>&1 | tee log.txt
