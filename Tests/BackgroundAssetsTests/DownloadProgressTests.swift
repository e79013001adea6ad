import Foundation
import StageSystem
import Testing

@testable import BackgroundAssets

/// The progress that applications get of a download.
@Suite struct DownloadProgressTests {
    private func progress(of total: Int64) -> DownloadProgress {
        let progress = DownloadProgress(parent: nil)
        progress.totalUnitCount = total
        return progress
    }

    @Test func aParentFollowsItsProgress() {
        let progress = progress(of: 4)
        let parent = Progress.discreteProgress(totalUnitCount: 2)
        parent.addChild(progress, withPendingUnitCount: 2)
        progress.completedUnitCount = 1
        #expect(progress.fractionCompleted == 0.25 && parent.fractionCompleted == 0.25)
        #expect(!progress.isFinished && !progress.isIndeterminate)
        progress.completedUnitCount = 4
        #expect(progress.isFinished && parent.completedUnitCount == 2)
    }

    @Test func aParentCancelsIt() {
        let progress = progress(of: 4)
        let parent = Progress.discreteProgress(totalUnitCount: 2)
        parent.addChild(progress, withPendingUnitCount: 2)
        parent.cancel()
        #expect(progress.isCancelled)
    }

    @Test func itsCountsAreReadWhileTheyChange() async {
        let last: Int64 = 10_000
        let progress = progress(of: last)
        async let writing: Void = withBlockingThread {
            for count in 1...last { progress.completedUnitCount = count }
        }
        var counts: [Int64] = [0]
        while counts.last != last {
            let count = progress.completedUnitCount
            if count != counts.last { counts.append(count) }
            await Task.yield()
        }
        await writing
        #expect(counts == counts.sorted())
    }
}
