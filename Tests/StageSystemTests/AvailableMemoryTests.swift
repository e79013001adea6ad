import StageSystem
import Testing

struct AvailableMemoryTests {
    /// More than nothing, and no more than the machine has.
    @Test func theMachineHasALimit() throws {
        let available = AvailableMemory.byteCount()
        #expect(available > 0 && available < 1 << 50)
    }
}
