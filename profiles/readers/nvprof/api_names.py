"""Names of CUDA calls by the number (cbid) that nvprof writes.

They are the calls that launch, copy, allocate and wait, and the most frequent other runtime calls. From
cupti_runtime_cbid.h and cupti_driver_cbid.h of CUPTI 12.9 (PyPI nvidia-cuda-cupti-cu12). A number never changes
its meaning, since new functions get new numbers. The names lack the version suffix of runtime functions, as all
API names in a Timeline do.
"""

from __future__ import annotations

from typing import Final

_RUNTIME = """
1:cudaDriverGetVersion 3:cudaGetDeviceCount 4:cudaGetDeviceProperties 8:cudaConfigureCall 9:cudaSetupArgument
10:cudaGetLastError 11:cudaPeekAtLastError 13:cudaLaunch 15:cudaFuncGetAttributes 16:cudaSetDevice 17:cudaGetDevice
20:cudaMalloc 21:cudaMallocPitch 22:cudaFree 23:cudaMallocArray 24:cudaFreeArray 25:cudaMallocHost 26:cudaFreeHost
27:cudaHostAlloc 28:cudaHostGetDevicePointer 30:cudaMemGetInfo 31:cudaMemcpy 32:cudaMemcpy2D 33:cudaMemcpyToArray
34:cudaMemcpy2DToArray 35:cudaMemcpyFromArray 36:cudaMemcpy2DFromArray 37:cudaMemcpyArrayToArray
38:cudaMemcpy2DArrayToArray 39:cudaMemcpyToSymbol 40:cudaMemcpyFromSymbol 41:cudaMemcpyAsync 42:cudaMemcpyToArrayAsync
43:cudaMemcpyFromArrayAsync 44:cudaMemcpy2DAsync 45:cudaMemcpy2DToArrayAsync 46:cudaMemcpy2DFromArrayAsync
47:cudaMemcpyToSymbolAsync 48:cudaMemcpyFromSymbolAsync 49:cudaMemset 50:cudaMemset2D 51:cudaMemsetAsync
52:cudaMemset2DAsync 126:cudaThreadSynchronize 129:cudaStreamCreate 130:cudaStreamDestroy 131:cudaStreamSynchronize
132:cudaStreamQuery 133:cudaEventCreate 134:cudaEventCreateWithFlags 135:cudaEventRecord 136:cudaEventDestroy
137:cudaEventSynchronize 138:cudaEventQuery 139:cudaEventElapsedTime 140:cudaMalloc3D 141:cudaMalloc3DArray
142:cudaMemset3D 143:cudaMemset3DAsync 144:cudaMemcpy3D 145:cudaMemcpy3DAsync 147:cudaStreamWaitEvent
151:cudaPointerGetAttributes 152:cudaHostRegister 153:cudaHostUnregister 154:cudaDeviceCanAccessPeer
155:cudaDeviceEnablePeerAccess 160:cudaMemcpyPeer 161:cudaMemcpyPeerAsync 162:cudaMemcpy3DPeer
163:cudaMemcpy3DPeerAsync 164:cudaDeviceReset 165:cudaDeviceSynchronize 167:cudaDeviceSetLimit
192:cudaMallocMipmappedArray 194:cudaFreeMipmappedArray 198:cudaStreamCreateWithFlags 200:cudaDeviceGetAttribute
201:cudaStreamDestroy 202:cudaStreamCreateWithPriority 205:cudaDeviceGetStreamPriorityRange 206:cudaMallocManaged
211:cudaLaunchKernel 213:cudaLaunch_ptsz 214:cudaLaunchKernel_ptsz 215:cudaMemcpy_ptds 216:cudaMemcpy2D_ptds
217:cudaMemcpyToArray_ptds 218:cudaMemcpy2DToArray_ptds 219:cudaMemcpyFromArray_ptds 220:cudaMemcpy2DFromArray_ptds
221:cudaMemcpyArrayToArray_ptds 222:cudaMemcpy2DArrayToArray_ptds 223:cudaMemcpyToSymbol_ptds
224:cudaMemcpyFromSymbol_ptds 225:cudaMemcpyAsync_ptsz 226:cudaMemcpyToArrayAsync_ptsz
227:cudaMemcpyFromArrayAsync_ptsz 228:cudaMemcpy2DAsync_ptsz 229:cudaMemcpy2DToArrayAsync_ptsz
230:cudaMemcpy2DFromArrayAsync_ptsz 231:cudaMemcpyToSymbolAsync_ptsz 232:cudaMemcpyFromSymbolAsync_ptsz
233:cudaMemset_ptds 234:cudaMemset2D_ptds 235:cudaMemsetAsync_ptsz 236:cudaMemset2DAsync_ptsz
239:cudaStreamSynchronize_ptsz 240:cudaStreamQuery_ptsz 242:cudaEventRecord_ptsz 243:cudaMemset3D_ptds
244:cudaMemset3DAsync_ptsz 245:cudaMemcpy3D_ptds 246:cudaMemcpy3DAsync_ptsz 247:cudaStreamWaitEvent_ptsz
249:cudaMemcpy3DPeer_ptds 250:cudaMemcpy3DPeerAsync_ptsz 252:cudaMemPrefetchAsync 253:cudaMemPrefetchAsync_ptsz
269:cudaLaunchCooperativeKernel 270:cudaLaunchCooperativeKernel_ptsz 272:cudaLaunchCooperativeKernelMultiDevice
284:cudaLaunchHostFunc 285:cudaLaunchHostFunc_ptsz 310:cudaGraphInstantiate 311:cudaGraphLaunch
312:cudaGraphLaunch_ptsz 370:cudaEventRecordWithFlags 371:cudaEventRecordWithFlags_ptsz 373:cudaMallocAsync
374:cudaMallocAsync_ptsz 375:cudaFreeAsync 376:cudaFreeAsync_ptsz 391:cudaMallocFromPoolAsync
392:cudaMallocFromPoolAsync_ptsz 430:cudaLaunchKernelExC 431:cudaLaunchKernelExC_ptsz 443:cudaGraphInstantiate
449:cudaMemPrefetchAsync_v2 450:cudaMemPrefetchAsync_v2_ptsz
"""

_DRIVER = """
17:cuCtxSynchronize 29:cuMemAlloc 31:cuMemAllocPitch 33:cuMemFree 37:cuMemAllocHost 38:cuMemFreeHost
39:cuMemHostAlloc 43:cuMemcpyHtoD 44:cu64MemcpyHtoD 45:cuMemcpyDtoH 46:cu64MemcpyDtoH 47:cuMemcpyDtoD
48:cu64MemcpyDtoD 49:cuMemcpyDtoA 50:cu64MemcpyDtoA 51:cuMemcpyAtoD 52:cu64MemcpyAtoD 53:cuMemcpyHtoA
54:cuMemcpyAtoH 55:cuMemcpyAtoA 56:cuMemcpy2D 57:cuMemcpy2DUnaligned 58:cuMemcpy3D 59:cu64Memcpy3D
60:cuMemcpyHtoDAsync 61:cu64MemcpyHtoDAsync 62:cuMemcpyDtoHAsync 63:cu64MemcpyDtoHAsync 64:cuMemcpyDtoDAsync
65:cu64MemcpyDtoDAsync 66:cuMemcpyHtoAAsync 67:cuMemcpyAtoHAsync 68:cuMemcpy2DAsync 69:cuMemcpy3DAsync
70:cu64Memcpy3DAsync 71:cuMemsetD8 72:cu64MemsetD8 73:cuMemsetD16 74:cu64MemsetD16 75:cuMemsetD32 76:cu64MemsetD32
77:cuMemsetD2D8 78:cu64MemsetD2D8 79:cuMemsetD2D16 80:cu64MemsetD2D16 81:cuMemsetD2D32 82:cu64MemsetD2D32
115:cuLaunch 116:cuLaunchGrid 117:cuLaunchGridAsync 119:cuEventRecord 120:cuEventQuery 121:cuEventSynchronize
125:cuStreamQuery 126:cuStreamSynchronize 216:cuMemsetD8Async 217:cu64MemsetD8Async 218:cuMemsetD16Async
219:cu64MemsetD16Async 220:cuMemsetD32Async 221:cu64MemsetD32Async 222:cuMemsetD2D8Async 223:cu64MemsetD2D8Async
224:cuMemsetD2D16Async 225:cu64MemsetD2D16Async 226:cuMemsetD2D32Async 227:cu64MemsetD2D32Async 232:cu64Memcpy2D
233:cu64Memcpy2DUnaligned 234:cu64Memcpy2DAsync 243:cuMemAlloc_v2 244:cuMemAllocPitch_v2 245:cuMemFree_v2
248:cuMemcpy_v2 249:cuMemsetD8_v2 250:cuMemsetD16_v2 251:cuMemsetD32_v2 252:cuMemsetD2D8_v2 253:cuMemsetD2D16_v2
254:cuMemsetD2D32_v2 271:cuMemHostAlloc_v2 276:cuMemcpyHtoD_v2 277:cuMemcpyHtoDAsync_v2 278:cuMemcpyDtoH_v2
279:cuMemcpyDtoHAsync_v2 280:cuMemcpyDtoD_v2 281:cuMemcpyDtoDAsync_v2 282:cuMemcpyAtoH_v2 283:cuMemcpyAtoHAsync_v2
284:cuMemcpyAtoD_v2 285:cuMemcpyDtoA_v2 286:cuMemcpyAtoA_v2 287:cuMemcpy2D_v2 288:cuMemcpy2DUnaligned_v2
289:cuMemcpy2DAsync_v2 290:cuMemcpy3D_v2 291:cuMemcpy3DAsync_v2 292:cuMemcpyHtoA_v2 293:cuMemcpyHtoAAsync_v2
294:cuMemAllocHost_v2 295:cuStreamWaitEvent 301:cuMemHostRegister 305:cuMemcpy 306:cuMemcpyAsync 307:cuLaunchKernel
318:cuMemcpyPeer 319:cuMemcpyPeerAsync 320:cuMemcpy3DPeer 321:cuMemcpy3DPeerAsync 371:cuMemAllocManaged
379:cuMemHostRegister_v2 397:cuMemcpyHtoD_v2_ptds 398:cuMemcpyDtoH_v2_ptds 399:cuMemcpyDtoD_v2_ptds
400:cuMemcpyDtoA_v2_ptds 401:cuMemcpyAtoD_v2_ptds 402:cuMemcpyHtoA_v2_ptds 403:cuMemcpyAtoH_v2_ptds
404:cuMemcpyAtoA_v2_ptds 405:cuMemcpy2D_v2_ptds 406:cuMemcpy2DUnaligned_v2_ptds 407:cuMemcpy3D_v2_ptds
408:cuMemcpy_ptds 409:cuMemcpyPeer_ptds 410:cuMemcpy3DPeer_ptds 411:cuMemsetD8_v2_ptds 412:cuMemsetD16_v2_ptds
413:cuMemsetD32_v2_ptds 414:cuMemsetD2D8_v2_ptds 415:cuMemsetD2D16_v2_ptds 416:cuMemsetD2D32_v2_ptds
418:cuMemcpyAsync_ptsz 419:cuMemcpyHtoAAsync_v2_ptsz 420:cuMemcpyAtoHAsync_v2_ptsz 421:cuMemcpyHtoDAsync_v2_ptsz
422:cuMemcpyDtoHAsync_v2_ptsz 423:cuMemcpyDtoDAsync_v2_ptsz 424:cuMemcpy2DAsync_v2_ptsz 425:cuMemcpy3DAsync_v2_ptsz
426:cuMemcpyPeerAsync_ptsz 427:cuMemcpy3DPeerAsync_ptsz 428:cuMemsetD8Async_ptsz 429:cuMemsetD16Async_ptsz
430:cuMemsetD32Async_ptsz 431:cuMemsetD2D8Async_ptsz 432:cuMemsetD2D16Async_ptsz 433:cuMemsetD2D32Async_ptsz
436:cuStreamWaitEvent_ptsz 439:cuStreamQuery_ptsz 440:cuStreamSynchronize_ptsz 441:cuEventRecord_ptsz
442:cuLaunchKernel_ptsz 467:cuMemPrefetchAsync 468:cuMemPrefetchAsync_ptsz 477:cuLaunchCooperativeKernel
478:cuLaunchCooperativeKernel_ptsz 480:cuLaunchCooperativeKernelMultiDevice 514:cuGraphLaunch 515:cuGraphLaunch_ptsz
527:cuLaunchHostFunc 528:cuLaunchHostFunc_ptsz 587:cuEventRecordWithFlags 588:cuEventRecordWithFlags_ptsz
598:cuMemAllocAsync 599:cuMemAllocAsync_ptsz 600:cuMemFreeAsync 601:cuMemFreeAsync_ptsz 611:cuMemAllocFromPoolAsync
612:cuMemAllocFromPoolAsync_ptsz 652:cuLaunchKernelEx 653:cuLaunchKernelEx_ptsz 716:cuMemPrefetchAsync_v2
717:cuMemPrefetchAsync_v2_ptsz
"""


def _table(text: str) -> dict[int, str]:
    pairs = (entry.split(":") for entry in text.split())
    return {int(number): name for number, name in pairs}


RUNTIME: Final = _table(_RUNTIME)
DRIVER: Final = _table(_DRIVER)
