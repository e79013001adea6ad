import StageControl
import StageSystem
import SystemPackage

/// Contents of users: their sizes, and copies of them.
extension TransferStore {
    /// Tells of the files of partial downloads and of copies, with the names that the journal knows.
    func countParts(_ tell: (String, Int64) -> Void) {
        var sizes: [String: Int64] = [:]
        for directory in [parts, snapshots] {
            // What cannot be listed cannot be counted; sums of what is there do not overflow.
            for entry in (try? directory.entries()) ?? [] {
                let name = String(entry.name.string.prefix { $0 != "." })
                let size = (try? directory.status(FilePath(entry.name)))?.size ?? 0
                sizes[name] = min((sizes[name] ?? 0) + min(size, 1 << 50), 1 << 50)
            }
        }
        for (name, size) in sizes { tell(name, size) }
    }

    /// Tells of the finished downloads of a user that were not moved away: those of `tasks`, which are
    /// looked for by their names, since the user may make any number of others.
    func countStaged(
        _ tasks: [Int64],
        of user: UInt32,
        _ tell: (Int64, Int64) -> Void
    ) {
        // A user without finished downloads has no directory; what cannot be looked at is not counted.
        guard let directory = try? openDirectory(of: user) else { return }
        for task in tasks {
            guard let status = try? directory.status(FilePath("\(task)")), status.kind == .file
            else { continue }
            tell(task, status.size)
        }
    }

    /// Makes a copy of complete content.
    func copyPart(
        _ source: FilePath.Component,
        to file: FilePath.Component
    ) throws(FileError) {
        let copy = try parts.file(creating: FilePath(file), permissions: .privateFile)
        guard let content = try parts.file(reading: FilePath(source)) else {
            throw FileError("open", path: FilePath(source), errno: .noSuchFileOrDirectory)
        }
        try copy.copyContent(of: content)
    }

    /// Adds to events where finished downloads are, unless they were moved away already.
    func located(
        _ events: [SessionEvent],
        of user: UInt32
    ) throws(DaemonError) -> [SessionEvent] {
        var events = events
        for (index, event) in events.enumerated() where event.kind == .completed {
            guard event.bytesReceived != nil, let task = event.task else { continue }
            do throws(FileError) {
                guard try isStaged(task, user: user) else { continue }
            } catch {
                throw .file(error)
            }
            events[index].location = location(of: task, user: user).string
        }
        return events
    }
}
