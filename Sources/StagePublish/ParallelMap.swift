import StageSystem

/// Maps values on `width` processors, each of which takes every `width`th value; their number does not change the result.
func mapInParallel<Value: Sendable, Result: Sendable>(
    _ values: [Value],
    width: Int,
    body: @escaping @Sendable ([Value]) -> [Result]
) async -> [Result] {
    let width = min(width, values.count)
    return await withTaskGroup(of: (Int, [Result]).self) { group in
        for part in 0..<width {
            let own = stride(from: part, to: values.count, by: width).map { values[$0] }
            group.addTask { (part, await withBlockingThread { body(own) }) }
        }
        var parts = [[Result]](repeating: [], count: width)
        for await (part, results) in group { parts[part] = results }
        return values.indices.map { parts[$0 % width][$0 / width] }
    }
}
