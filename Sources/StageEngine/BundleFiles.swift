import StageContainer
import StageIndex
import StageModel
import StageSystem
import StageTransfer

/// A whole bundle in a file, which can be read though its name is removed.
final class BundleFile: Sendable {
    private let part: PartialFile
    private let file: File

    init(_ part: PartialFile) throws(FileError) {
        self.part = part
        file = try File.open(readingRegular: part.path)
    }

    /// Reads bytes of the bundle; fewer where it is shorter.
    func bytes(in range: Range<Int64>) throws(FileError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: range.count)
        let count = try file.read(into: &bytes, at: range.lowerBound)
        bytes.removeLast(bytes.count - count)
        return bytes
    }

    /// Removes the file; the caller holds the lock on the download.
    func remove() throws(TransferError) { try part.remove() }
}

/// Whole bundles in files, from servers that give no parts.
actor BundleFiles {
    private let source: IndexSource
    private let index: ContentIndex
    /// Whether whole bundles are fetched at all.
    let isAllowed: Bool
    private var files: [Int: Task<Result<BundleFile, StageError>, Never>] = [:]

    init(source: IndexSource, index: ContentIndex, isAllowed: Bool) {
        self.source = source
        self.index = index
        self.isAllowed = isAllowed
    }

    /// Returns the file of a bundle, after fetching all of it.
    func file(of number: Int) async throws(StageError) -> BundleFile {
        let bundle = index.bundles[number]
        let task: Task<Result<BundleFile, StageError>, Never>
        if let running = files[number] {
            task = running
        } else {
            task = Task { [source] in
                await Result { () async throws(StageError) in try await source.download(bundle) }
            }
            files[number] = task
        }
        let result = await withTaskCancellationHandler {
            await task.value
        } onCancel: {
            task.cancel()
        }
        return try result.get()
    }

    /// Removes what is not needed any more; what was not complete stays for a later run.
    func remove() async {
        for (number, task) in files {
            let name = ContainerLayout.downloadName(of: index.bundles[number].digest)
            // A process that holds the lock needs the file, and removes it. What cannot be removed now is
            // removed by a sweep.
            guard case .success(let bundle) = await task.value,
                let lock = try? source.work.container.attemptDownloadLock(name)
            else { continue }
            try? bundle.remove()
            lock.end()
        }
        files = [:]
    }
}

extension IndexSource {
    /// Where a bundle is, in the order in which to ask.
    func urls(of bundle: ContentIndex.Bundle) -> [String] {
        work.manifest.manifest.urls(
            forBundle: bundle.digest,
            of: reference,
            manifestURL: work.manifest.record.resolvedURL
        )
    }

    /// Fetches a bundle whole.
    fileprivate func download(
        _ bundle: ContentIndex.Bundle
    ) async throws(StageError) -> BundleFile {
        let lock = try await work.downloadLock(bundle.digest)
        defer { lock.end() }
        let part = try await work.download(
            bundle.digest,
            size: ByteCount(bundle.size),
            from: urls(of: bundle),
            reportsBytes: false
        ).part
        return try StageError.wrapping { () throws(FileError) in try BundleFile(part) }
    }
}

extension Result where Success: Sendable, Failure: Sendable {
    /// What an asynchronous body returns or throws.
    init(_ body: () async throws(Failure) -> Success) async {
        do throws(Failure) {
            self = .success(try await body())
        } catch {
            self = .failure(error)
        }
    }
}
