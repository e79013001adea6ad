import StageControl
import StageSystem
import SystemPackage

/// Sizes and copies of files.
extension TransferFiles {
    /// Sizes of the files of a partial download or an upload copy, in bytes.
    struct PartSize {
        /// Size of all files.
        fileprivate(set) var all: Int64 = 0
        /// Size of the file with the content.
        fileprivate var file: Int64 = 0
        /// Set if there is a record of the content.
        fileprivate var isRecorded = false

        /// Received bytes of a download.
        ///
        /// The next attempt may find fewer of these bytes usable, as after a power cut, or none if no validator was recorded.
        var content: Int64 { isRecorded ? file : 0 }
    }

    /// Returns the sizes of partial downloads and upload copies by name.
    func partSizes() -> [String: PartSize] {
        var sizes: [String: PartSize] = [:]
        for directory in [parts, snapshots] {
            // A directory that cannot be listed is not counted. Sizes are limited, so that sums do not overflow.
            for entry in (try? directory.entries()) ?? [] {
                let file = entry.path.string
                let name = String(file.prefix { $0 != "." })
                let size = min((try? directory.status(entry.path))?.size ?? 0, 1 << 50)
                var sum = sizes[name] ?? PartSize()
                sum.all = min(sum.all + size, 1 << 50)
                if file.hasPrefix("\(name).part.") { sum.file = size }
                if file == "\(name).state" { sum.isRecorded = true }
                sizes[name] = sum
            }
        }
        return sizes
    }

    /// Reports the sizes of a user's finished downloads that were not moved away.
    ///
    /// Looks each of `tasks` up by name, since the user can create any number of other files.
    func countFinished(
        _ tasks: [Int64],
        of user: UInt32,
        report: (Int64, Int64) -> Void
    ) {
        // A user without finished downloads has no directory; files that cannot be read are not counted.
        guard let directory = try? openDirectory(of: user) else { return }
        for task in tasks {
            guard let name = try? Self.name(of: task),
                let status = try? directory.status(unmounted: name), status.kind == .file
            else { continue }
            report(task, status.size)
        }
    }

    /// Copies a complete part file.
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

    /// Adds the paths of finished downloads to events, except of files that were moved away.
    func located(
        _ events: [SessionEvent],
        of user: UInt32
    ) throws(DaemonError) -> [SessionEvent] {
        var events = events
        for (index, event) in events.enumerated() where event.kind == .completed {
            guard event.bytesReceived != nil, let task = event.task else { continue }
            do throws(FileError) {
                guard try hasFinished(task, user: user) else { continue }
            } catch {
                throw .file(error)
            }
            events[index].location = finishedPath(of: task, user: user).string
        }
        return events
    }
}
