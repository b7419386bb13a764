#!/bin/bash
# The entry point of the image: `resurgence` with the container's arguments, or a Spark executor.
#
# Spark starts an executor pod with the argument `executor`, and describes the executor in variables. Every
# image for Spark on Kubernetes must understand that; PySpark's package has no script that does.
set -euo pipefail

if [ "${1:-}" != executor ]; then
    exec resurgence "$@"
fi

options=()
for ((number = 0; ; number++)); do
    name="SPARK_JAVA_OPT_$number"
    [ -n "${!name+is set}" ] || break
    options+=("${!name}")
done

exec java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
