import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import SystemPackage

/// Checks the clients that create tasks, and prepares the files of the tasks.
struct TaskPreparation: Sendable {
    let journal: Journal
    let files: TransferFiles
    let storage: UserStorage
    /// Releases the quota of a user's finished downloads whose files were moved away; returns whether there were any.
    let releaseMoved: @Sendable (UInt32) async -> Bool
    /// Releases the quota of files.
    let release: @Sendable ([DiskQuota.Item]) async -> Void

    /// Checks that the client's process is not confined.
    ///
    /// The daemon connects to servers and reads files as the client's user, but outside of any confinement of the
    /// process. For downloads only another network namespace counts: most programs with `no_new_privs` or a filter of
    /// system calls, such as browsers and those of Flatpak, may use the network, and the daemon cannot read which calls
    /// the filter of another process refuses.
    func checkConfinement(
        of client: ClientCredentials,
        creating tasks: [TransferRequest]
    ) async throws(ControlRefusal) {
        let hasUploads = tasks.contains { $0.kind == .upload }
        let refusal = await withBlockingThread {
            hasUploads
                ? HandlerPolicy.restriction(of: client)
                : HandlerPolicy.networkRestriction(of: client)
        }
        guard let refusal else { return }
        throw ControlRefusal(
            .forbidden,
            message:
                "the client \(refusal), so the daemon, which is less confined, transfers nothing for it"
        )
    }

    /// Returns those of the requests' tokens that exist in the session, as bytes.
    ///
    /// Only for uploads and resumed downloads, which need preparation.
    func knownTokens(
        of requests: [TransferRequest],
        in session: Int64
    ) async throws(ControlRefusal) -> Set<[UInt8]> {
        let tokens = requests.filter { $0.kind == .upload || $0.resumeToken != nil }.map(\.token)
        guard !tokens.isEmpty else { return [] }
        do throws(DaemonError) {
            return try await journal.knownTokens(tokens, in: session)
        } catch {
            throw ControlRefusal(.storage, message: "\(error)")
        }
    }

    /// Copies the file to upload, or looks up the resume data.
    func prepare(
        _ task: inout NewTask,
        for client: ClientCredentials,
        of user: UInt32
    ) async throws(ControlRefusal) {
        if task.request.kind == .upload {
            try await copyFile(&task, for: client, of: user)
        } else if let token = task.request.resumeToken {
            let resumeData: ResumeData?
            do throws(DaemonError) {
                resumeData = try await journal.resumeData(token, of: user)
            } catch {
                throw ControlRefusal(.storage, message: "\(error)")
            }
            guard let resumeData else {
                throw ControlRefusal(
                    .invalid,
                    message: "the resume token was used already, or has expired"
                )
            }
            guard resumeData.url == task.request.url else {
                throw ControlRefusal(.invalid, message: "the resume token belongs to another URL")
            }
            task.part = resumeData.part
            task.usedResumeToken = token
        }
    }

    /// Copies the file to upload, after reserving quota for it.
    ///
    /// The copy ends at the reserved size if the file grows.
    private func copyFile(
        _ task: inout NewTask,
        for client: ClientCredentials,
        of user: UInt32
    ) async throws(ControlRefusal) {
        let (files, path) = (files, FilePath(task.request.file ?? ""))
        let text = "upload-\(UUID().uuidString.lowercased())"
        guard let name = FilePath.Component(text) else { return }
        let size: Int64
        do throws(FileError) {
            size = try await withBlockingThread(of: client.user) { () throws(FileError) in
                try File.open(readingRegular: path, as: client.identity).status().size
            }
        } catch {
            throw ControlRefusal(
                error.isRefusedByLimit ? .unavailable : .invalid,
                message: "\(error)"
            )
        }
        if let parts = task.request.parts, parts.size != ByteCount(size) {
            throw ControlRefusal(
                .invalid,
                message:
                    "the parts have \((parts.size?.rawValue ?? 0).quantity(of: "byte")), and the file has \(size)"
            )
        }
        try await reserve(.part(text), size: size, of: user)
        do throws(FileError) {
            let count = try await withBlockingThread(of: client.user) { () throws(FileError) in
                try files.snapshot(
                    path,
                    as: name,
                    for: client.identity,
                    limit: ByteCount(size)
                )
            }
            task.part = text
            task.request.size = ByteCount(count)
        } catch {
            await release([.part(text)])
            let passes: ControlRefusal.Code? = error.isRefusedByLimit ? .unavailable : nil
            throw ControlRefusal(
                error.isOutOfSpace ? .storage : passes ?? .invalid,
                message: "\(error)"
            )
        }
    }

    /// Reserves quota for a file before it is written.
    ///
    /// - Throws: ``ControlRefusal`` with ``ControlRefusal/Code/quota`` or ``ControlRefusal/Code/storage``.
    private func reserve(
        _ item: DiskQuota.Item,
        size: Int64,
        of user: UInt32
    ) async throws(ControlRefusal) {
        var verdict = storage.grow(item, to: size, of: user)
        if verdict == .later, await releaseMoved(user) {
            verdict = storage.grow(item, to: size, of: user)
        }
        switch verdict {
        case .granted: return
        case .later:
            throw ControlRefusal(
                .quota,
                message: "your files in the daemon reach your quota: move finished downloads away"
            )
        case .never(let limit):
            throw ControlRefusal(
                .quota,
                message: "one user may have \(ByteCount(limit)) in the daemon"
            )
        case .full:
            throw ControlRefusal(
                .storage,
                message: "the disk is full: free some space and repeat the request"
            )
        }
    }
}
