import StageSystem

/// Maps values on `width` processors, each of which takes every `width`th value.
///
/// - Precondition: `body` returns a result for each value, which does not depend on the others.
func mapInParallel<Value: Sendable, Output: Sendable>(
    _ values: [Value],
    width: Int,
    body: @escaping @Sendable ([Value]) -> [Output]
) async -> [Output] {
    let width = min(max(width, 1), values.count)
    return await withTaskGroup(of: (Int, [Output]).self) { group in
        for part in 0..<width {
            let own = stride(from: part, to: values.count, by: width).map { values[$0] }
            group.addTask { (part, await withBlockingThread { body(own) }) }
        }
        var parts = [[Output]](repeating: [], count: width)
        for await (part, results) in group { parts[part] = results }
        return values.indices.map { parts[$0 % width][$0 / width] }
    }
}
