package import StageControl

extension DaemonProcess {
    /// Creates many downloads of a URL, a thousand with each request, and returns their numbers.
    @discardableResult
    package func downloads(
        _ count: Int,
        of url: String,
        in session: String = "s",
        _ change: (inout TransferRequest) -> Void
    ) async throws -> [Int64] {
        var ids: [Int64] = []
        for start in stride(from: 0, to: count, by: 1000) {
            let requests = (start..<min(start + 1000, count)).map { number in
                var request = TransferRequest(token: "\(number)", kind: .download, url: url)
                change(&request)
                return request
            }
            ids += try await client.createTasks(requests, in: session)
        }
        return ids
    }
}
